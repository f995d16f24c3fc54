package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Kinds of login as forced_login_method and allowed_login_methods name them.
// The restriction is on what pays and where the data goes, so it is read
// strictly: any key, also a provider's own or one that a proxy adds, is "api",
// and only a ChatGPT login can belong to a workspace.
const (
	methodAPI     = "api"
	methodChatGPT = "chatgpt"
)

// allow refuses a credential that the configuration or the requirements do not
// admit. Nothing is deleted and no other credential is tried: a run must not
// change its account by accident. accounts is empty for keys.
func (s *Sources) allow(name, method string, accounts []string) *Error {
	if e := s.allowMethod(name, method); e != nil {
		return e
	}
	return s.allowWorkspace(name, method, accounts)
}

func (s *Sources) allowMethod(name, method string) *Error {
	switch s.ForcedLoginMethod {
	case "", method:
	case methodAPI, methodChatGPT:
		return forbidden(ClassForbiddenLogin, name, fmt.Sprintf("forced_login_method is %q and this is a login of the kind %q", s.ForcedLoginMethod, method))
	default:
		return forbidden(ClassForbiddenLogin, name, fmt.Sprintf("forced_login_method is %q, which is neither \"api\" nor \"chatgpt\"", s.ForcedLoginMethod))
	}
	if s.AllowedMethods != nil && !slices.Contains(s.AllowedMethods, method) {
		return forbidden(ClassForbiddenLogin, name, fmt.Sprintf("allowed_login_methods is [%s] and this is a login of the kind %q", strings.Join(s.AllowedMethods, ", "), method))
	}
	return nil
}

func (s *Sources) allowWorkspace(name, method string, accounts []string) *Error {
	for _, list := range []struct {
		key     string
		ids     []string
		applies bool
	}{
		{"forced_chatgpt_workspace_id", s.ForcedWorkspaces, len(s.ForcedWorkspaces) > 0},
		{"allowed_chatgpt_workspaces", s.AllowedWorkspaces, s.AllowedWorkspaces != nil},
	} {
		if !list.applies {
			continue
		}
		if len(accounts) == 0 {
			return forbidden(ClassForbiddenWorkspace, name, fmt.Sprintf("%s names a workspace and this is a login of the kind %q, which belongs to none", list.key, method))
		}
		for _, id := range accounts {
			if !slices.Contains(list.ids, id) {
				return forbidden(ClassForbiddenWorkspace, name, fmt.Sprintf("it belongs to the workspace %s, which %s does not name", suffix(id), list.key))
			}
		}
	}
	return nil
}

func forbidden(class, name, why string) *Error {
	return &Error{
		Class:   class,
		Message: name + " is not allowed: " + why,
		hint:    "use a login that is allowed; no credential was changed or deleted",
	}
}

// suffix shortens an account id for people and reports.
func suffix(id string) string {
	if len(id) <= 4 {
		return id
	}
	return "…" + id[len(id)-4:]
}
