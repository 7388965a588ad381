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

// guarded makes an error of a verb's panic. A panic would print its stack where nobody looks, and the runtime would know nothing
// but that the plugin has ended.
func (p *Plugin) guarded(verb func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = p.broken(v, debug.Stack())
			}
		}()
		return verb(args)
	}
}

// broken is the error of a panic. The stack is printed: with the pieces of a JSON log nobody finds the place.
func (p *Plugin) broken(v any, stack []byte) error {
	if err, ok := v.(error); ok {
		var inner *netns.Panic // which ran on another thread
		if errors.As(err, &inner) {
			v, stack = inner.Value, inner.Stack
		}
	}
	fmt.Fprintf(p.Stderr, "panic: %v\n%s\n", v, stack)
	return types.NewError(types.ErrInternal, line(fmt.Sprintf("a defect of the plugin: %v", v)), place(string(stack)))
}

// place finds where a panic happened: the first function of ours that the stack names below the call of panic.
func place(stack string) string {
	_, after, _ := strings.Cut(stack, "\npanic(")
	ours := false
	for text := range strings.SplitSeq(after, "\n") {
		if file, found := strings.CutPrefix(text, "\t"); found && ours {
			file, _, _ = strings.Cut(file, " +0x")
			return "at " + file
		}
		ours = strings.HasPrefix(text, "github.com/sluice-mesh/")
	}
	return ""
}
