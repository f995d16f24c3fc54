package tool

import "context"

// Announcer is a tool that calls [Begun] as soon as the item of a call stands in
// the log. Calls of one response begin in their order, so the next one waits for
// that; those of other tools make nobody wait.
type Announcer interface{ Announces() }

type begunKey struct{}

// OnBegun makes [Begun] call f.
func OnBegun(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, begunKey{}, f)
}

// Begun tells that the item of the call of ctx stands in the log.
func Begun(ctx context.Context) {
	if f, ok := ctx.Value(begunKey{}).(func()); ok {
		f()
	}
}
