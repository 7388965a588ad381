package plugin

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// withoutPanics returns a function that calls the verb and turns a panic into an error. Otherwise
// the runtime would report only that the plugin has exited.
func (p *Plugin) withoutPanics(verb func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = p.panicError(v, debug.Stack())
			}
		}()
		return verb(args)
	}
}

// panicError returns the error for a panic, and prints the stack to stderr: in a JSON log it would
// be hard to read.
func (p *Plugin) panicError(v any, stack []byte) error {
	for {
		err, _ := v.(error)
		var inner *netns.Panic // of a function that ran on another thread
		if !errors.As(err, &inner) {
			break
		}
		v, stack = inner.Value, inner.Stack
	}
	fmt.Fprintf(p.Stderr, "panic: %v\n%s\n", v, stack)
	return types.NewError(types.ErrInternal, shortLine(fmt.Sprintf("a defect of the plugin: %v", v)),
		location(string(stack)))
}

// location returns the file and the line of a panic, in the form "at FILE:LINE": the position in
// the first function of Sluice below the call of panic in the stack. Without such a function, it
// returns an empty string.
func location(stack string) string {
	_, after, _ := strings.Cut(stack, "\npanic(")
	inSluice := false
	for text := range strings.SplitSeq(after, "\n") {
		if file, found := strings.CutPrefix(text, "\t"); found && inSluice {
			file, _, _ = strings.Cut(file, " +0x")
			return "at " + file
		}
		inSluice = strings.HasPrefix(text, "github.com/sluice-mesh/")
	}
	return ""
}
