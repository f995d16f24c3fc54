package policy

// networkLimit is experimental_network of one file.
type networkLimit struct {
	at           *node
	off          *node // enabled = false
	proxy        *node // enabled = true
	allow        []*node
	hasAllow     bool
	deny         []*node
	review       []*node
	sockets      map[string]bool
	socketsAt    *node
	local        *node // allow_local_binding = false
	injectsAt    *node
	originAllow  string
	originReview string
}

func networkLimitOf(n *node) networkLimit {
	l := networkLimit{at: n, originAllow: n.origin()}
	if e := n.get("enabled"); e != nil {
		if e.yes {
			l.proxy = e
		} else {
			l.off = e
		}
	}
	if d := n.get("domains"); d != nil {
		for _, host := range d.keys {
			at := d.fields[host]
			entry := &node{kind: kString, text: host, layer: at.layer, line: at.line, column: at.column}
			if at.text == "allow" {
				l.allow = append(l.allow, entry)
			} else {
				l.deny = append(l.deny, entry)
			}
		}
		l.hasAllow = len(l.allow) > 0
	}
	if a := n.get("allowed_domains"); a != nil {
		l.allow, l.hasAllow, l.originAllow = append(l.allow, a.items...), true, a.origin()
	}
	if d := n.get("denied_domains"); d != nil {
		l.deny = append(l.deny, d.items...)
	}
	if r := n.get("review_domains"); r != nil {
		l.originReview = r.origin()
		switch r.kind {
		case kArray:
			l.review = r.items
		case kTable:
			for _, host := range r.keys {
				l.review = append(l.review, &node{kind: kString, text: host, layer: r.layer, line: r.fields[host].line})
			}
		}
	}
	if n.get("managed_allowed_domains_only") != nil && n.get("managed_allowed_domains_only").yes {
		l.hasAllow = true
	}
	if u := n.get("unix_sockets"); u != nil {
		l.socketsAt, l.sockets = u, map[string]bool{}
		for _, p := range u.keys {
			l.sockets[p] = u.fields[p].text == "allow"
		}
	}
	if u := n.get("allow_unix_sockets"); u != nil {
		if l.sockets == nil {
			l.socketsAt, l.sockets = u, map[string]bool{}
		}
		for _, p := range stringsOf(u) {
			l.sockets[p] = true
		}
	}
	if b := n.get("allow_local_binding"); b != nil && !b.yes {
		l.local = b
	}
	l.injectsAt = n.get("header_injections")
	return l
}
