package mcp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// The servers of these tests are this test binary, started again with the name
// of a behaviour in this variable. They speak the protocol by hand, so that
// they can break it.
const behaviourVar = "NIGHTSHIFT_TEST_SERVER"

type fake struct {
	out   *bufio.Writer
	tools string // JSON list
	// call answers tools/call: a result, or an error object.
	call func(name string, args map[string]any) (result, fault string)
	// other answers any other method; "" is "no such method".
	other func(method string, params map[string]any) string
	// init changes what initialize answers.
	init string
}

func (f *fake) send(format string, args ...any) {
	fmt.Fprintf(f.out, format+"\n", args...)
	f.out.Flush()
}

func (f *fake) serve(in io.Reader) {
	f.out = bufio.NewWriter(os.Stdout)
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params map[string]any  `json:"params"`
		}
		if json.Unmarshal(sc.Bytes(), &m) != nil || m.ID == nil || m.Method == "" {
			continue
		}
		result, fault := "", ""
		switch m.Method {
		case "initialize":
			if result = f.init; result == "" {
				result = fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"fake","version":"1"},"instructions":"How to use it."}`, m.Params["protocolVersion"])
			}
		case "tools/list":
			if result = f.tools; strings.HasPrefix(result, "[") {
				result = `{"tools":` + result + `}`
			}
			if f.other != nil {
				if r := f.other(m.Method, m.Params); r != "" {
					result = r
				}
			}
		case "tools/call":
			args, _ := m.Params["arguments"].(map[string]any)
			result, fault = f.call(m.Params["name"].(string), args)
		default:
			if f.other != nil {
				result = f.other(m.Method, m.Params)
			}
		}
		switch {
		case fault == "" && result == "":
			fault = `{"code":-32601,"message":"no such method"}`
			fallthrough
		case fault != "":
			f.send(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, fault)
		default:
			f.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}
	}
}

func text(s string) string {
	b, _ := json.Marshal(s)
	return `{"content":[{"type":"text","text":` + string(b) + `}]}`
}

const readOnly = `"annotations":{"readOnlyHint":true}`

func simple(names ...string) string {
	var list []string
	for _, n := range names {
		list = append(list, fmt.Sprintf(`{"name":%q,"description":"does %s",%s,"inputSchema":{"type":"object","properties":{"x":{"type":"string"}}}}`, n, n, readOnly))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func echo(name string, args map[string]any) (string, string) {
	return text(fmt.Sprint(name, " ", args["x"])), ""
}

// behave is the main function of a test server.
func behave(name string) {
	f := &fake{tools: simple("one"), call: echo}
	switch name {
	case "scales":
		f.tools = `[{"name":"weigh","description":"Weighs fruit.",` + readOnly + `,"inputSchema":{"type":"object","properties":{"fruit":{"type":"string"},"n":{"type":"integer"}},"required":["fruit","n"]}},
			{"name":"jam","description":"Always jams.",` + readOnly + `,"inputSchema":{"type":"object","properties":{}}},
			{"name":"discard","description":"Throws fruit away.","inputSchema":{"type":"object","properties":{}}},
			{"name":"burn","annotations":{"readOnlyHint":true,"destructiveHint":true},"inputSchema":{"type":"object"}}]`
		f.tools = strings.ReplaceAll(strings.ReplaceAll(f.tools, "\n", ""), "\t", "")
		f.call = func(name string, args map[string]any) (string, string) {
			switch name {
			case "weigh":
				g := int(args["n"].(float64)) * 150
				return fmt.Sprintf(`{"content": [{"type": "text", "text": "%d grams"}], "structuredContent": {"grams": %d}}`, g, g), ""
			case "jam":
				return `{"content":[{"type":"text","text":"the scale jammed"}],"isError":true}`, ""
			}
			return text("gone"), ""
		}
	case "odd":
		f.call = oddAnswers
		f.tools = simple("answer")
	case "list":
		f.tools = oddList
	case "endless":
		n := 0
		f.other = func(method string, _ map[string]any) string {
			n++
			return fmt.Sprintf(`{"tools":%s,"nextCursor":"c%d"}`, simple(fmt.Sprint("t", n)), n)
		}
	case "circle":
		f.other = func(string, map[string]any) string { return `{"tools":[],"nextCursor":"again"}` }
	case "paged":
		f.other = func(method string, p map[string]any) string {
			if method != "tools/list" {
				return ""
			}
			if p["cursor"] == "two" {
				return `{"tools":` + simple("b") + `}`
			}
			return `{"tools":` + simple("a") + `,"nextCursor":"two"}`
		}
	case "notalist":
		f.tools = `{"tools":"many"}`
	case "version":
		f.init = `{"protocolVersion":"1066-10-14","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`
	case "chatty":
		fmt.Println("Welcome to the server!\n\n{\"level\":\"info\"}\n[1,2\n42\n[]\n[1,2]\n{\"jsonrpc\":\"2.0\"}\n{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"?\"}}")
		f.call = func(name string, args map[string]any) (string, string) {
			fmt.Println("debug: calling")
			for i := range 100 {
				f.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%d"}}`, i)
			}
			f.send(`{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{}}`)
			f.send(`{"jsonrpc":"2.0","id":"s2","method":"roots/list"}`)
			f.send(`{"jsonrpc":"2.0","id":999,"result":{}}`)
			return echo(name, args)
		}
	case "silent":
		for sc := bufio.NewScanner(os.Stdin); sc.Scan(); {
		}
		return
	case "deaf":
		time.Sleep(time.Hour)
	case "stuck", "stuckcall":
		f.call = func(string, map[string]any) (string, string) { time.Sleep(time.Hour); return "", "" }
	case "deafcall":
		f.call = func(name string, _ map[string]any) (string, string) {
			if name == "one" {
				time.Sleep(time.Hour)
			}
			return "", ""
		}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		f.serve(os.Stdin)
		time.Sleep(time.Hour)
	case "diesearly":
		fmt.Fprintln(os.Stderr, "cannot open\x1b[31m database")
		os.Exit(3)
	case "dies":
		f.call = func(string, map[string]any) (string, string) {
			fmt.Fprintln(os.Stderr, "out of pears")
			os.Exit(7)
			return "", ""
		}
	case "flood", "floodjunk", "floodline":
		f.call = func(string, map[string]any) (string, string) {
			line := map[string]string{
				"flood": `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}` + "\n", "floodjunk": "junk\n", "floodline": strings.Repeat("x", 4096),
			}[name]
			w := bufio.NewWriterSize(os.Stdout, 1<<20)
			for {
				if _, err := w.WriteString(line); err != nil {
					os.Exit(1)
				}
			}
		}
	case "leaky": // says a secret so often that every cut goes through one
		f.tools = simple("answer", "refuse", "die")
		secrets := strings.Repeat("sekret-token-8f3a1c", 100_000)
		f.call = func(name string, _ map[string]any) (string, string) {
			switch name {
			case "refuse":
				return "", `{"code":1,"message":"` + secrets + `"}`
			case "die":
				fmt.Fprint(os.Stderr, secrets)
				os.Exit(1)
			}
			return text(secrets), ""
		}
		f.other = func(method string, _ map[string]any) string {
			if method != "resources/read" {
				return ""
			}
			return `{"contents":[{"uri":"x","text":"` + secrets + `"}]}`
		}
	case "big":
		f.call = func(_ string, args map[string]any) (string, string) {
			return text(strings.Repeat("é", int(args["n"].(float64)))), ""
		}
		f.tools = simple("fill")
	case "env":
		f.call = func(_ string, args map[string]any) (string, string) {
			dir, _ := os.Getwd()
			err := os.WriteFile(args["x"].(string), []byte("x"), 0o600)
			return text(fmt.Sprint(os.Getenv("A"), "|", os.Getenv("B"), "|", os.Getenv("HOME"), "|", dir, "|", err != nil)), ""
		}
	case "oddlibrary":
		f.other = func(string, map[string]any) string { return `{"resources":7}` }
	case "library":
		f.other = func(method string, p map[string]any) string {
			switch method {
			case "resources/list":
				return `{"resources":[{"uri":"pear://1","name":"pear","size":12345678901234567890}]}`
			case "resources/templates/list":
				return `{"resourceTemplates":[{"uriTemplate":"pear://{n}","name":"pears"}],"nextCursor":"more"}`
			case "resources/read":
				if p["uri"] == "pear://1" {
					return `{"contents":[{"uri":"pear://1","text":"a pear"}]}`
				}
			}
			return ""
		}
	}
	f.serve(os.Stdin)
}

// onePixel is a whole PNG.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// oddAnswers gives the answer that its argument names.
func oddAnswers(_ string, args map[string]any) (string, string) {
	switch args["x"] {
	case "mixed":
		return `{"content":[{"type":"text","text":"t1"},{"type":"image","data":"` + onePixel + `","mimeType":"image/png"},{"type":"audio","data":"AAAA","mimeType":"audio/wav"},` +
			`{"type":"resource","resource":{"uri":"file:///x","text":"r"}},{"type":"hologram","shape":[1, 2]},{"type":"image","data":"aGk=","mimeType":"image/tiff"},` +
			`{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"image","data":"!","mimeType":"image/png"}]}`, ""
	case "structured":
		return `{"content":[{"type":"text","text":"ignored"}],"structuredContent":{"b":12345678901234567890,"a":{"y":[1, 2]}}}`, ""
	case "null":
		return `{"content":[{"type":"text","text":"t"}],"structuredContent":null}`, ""
	case "empty":
		return `{"content":[]}`, ""
	case "nothing":
		return `{}`, ""
	case "badcontent":
		return `{"content":"text"}`, ""
	case "nullblock":
		return `{"content":[null]}`, ""
	case "number":
		return `7`, ""
	}
	return "", `{"code":-32000,"message":"text","data":{"x":1}}`
}

var oddList = `[{"name":"plain","inputSchema":{"type":"object","properties":{"x":{"type":"string"}},"$defs":{}}},` +
	`{"name":"plain","inputSchema":{"type":"object"}},` +
	`{"name":"no schema"},{"name":"nulls","inputSchema":null},{"name":"listed","inputSchema":[1]},{"name":"string","inputSchema":{"type":"string"}},` +
	`{"name":"untyped","inputSchema":{"properties":{"y":{}}}},{"name":"noprops","inputSchema":{"type":"object","properties":null,"required":["z"]}},` +
	`{"name":"huge","inputSchema":{"type":"object","description":"` + strings.Repeat("d", maxSchema) + `"}},` +
	`{"name":"a.b"},{"name":"a b"},{"name":"a_b"},{"name":"c.d"},{"name":"` + strings.Repeat("n", 80) + `"},{"name":"é"},{"name":"off"},` +
	`{"name":""},null,7,{"name":7},{"name":"hints","annotations":"none"},{"name":"long","description":"` + strings.Repeat("w", maxDescription+10) + `"}]`
