package nft_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// TestTrafficInUserNamespace uses a pod with hostUsers: false. The pod's network namespace belongs
// to another user namespace. The ids in rules are ids of this user namespace.
func TestTrafficInUserNamespace(t *testing.T) {
	t.Parallel()
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			o := testbed.Options{Pod: netnstest.NewInUserNS(t), IDBase: netnstest.UserNSBase}
			b := startNetwork(t, o, mode, nil)
			checkCalls(t, b, applyRedirect(t, b, sidecar(mode)), mode, defaultCalls)

			r := sidecar(mode)
			allDNS(&r)
			r.OwnerGroupsExclude = must(rules.ParseIDs("2000-2005", nil))
			checkCalls(t, b, applyRedirect(t, b, r), mode, []row{
				{call: "app udp world:53", want: "dns"},
				{call: "proxy udp world:53", want: "outside"},
				{call: "5:2003 tcp world:80", want: "outside"},
				{call: "5:2006 tcp world:80", want: "outbound"},
			})
		})
	}
}
