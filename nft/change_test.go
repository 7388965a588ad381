package nft

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// changed is the sidecar with so many excluded prefixes of each family, and other parameters.
func changed(t testing.TB, n int, change func(*rules.Redirect)) *Prepared {
	t.Helper()
	r := sidecar(n)
	change(&r)
	return prepared(t, rules.Compile(r))
}

func same(*rules.Redirect) {}

// otherPrefix puts another prefix in the place of the first one.
func otherPrefix(r *rules.Redirect) {
	r.OutboundExcludeCIDRs = append(slices.Clone(r.OutboundExcludeCIDRs[1:]), netip.MustParsePrefix("192.0.2.0/24"))
}

func TestChange(t *testing.T) {
	for _, row := range []struct {
		name     string
		from, to *Prepared
		// between happens after the first ruleset was seen.
		between func(t *testing.T, ns *netns.NS)
		// forget makes the generation one that nobody has seen.
		forget bool
		want   Outcome
		sent   int // the most bytes of a transaction
	}{
		{name: "one prefix", from: changed(t, 100, same), to: changed(t, 100, otherPrefix), want: Updated, sent: 400},
		{name: "of an unknown generation", from: changed(t, 100, same), to: changed(t, 100, otherPrefix), forget: true, want: Updated, sent: 400},
		{name: "nothing", from: changed(t, 100, same), to: changed(t, 100, same), want: Unchanged},
		{name: "rules", from: changed(t, 2, same), to: changed(t, 2, func(r *rules.Redirect) { r.DNS = rules.DNS{} }), want: Replaced, sent: 1 << 16},
		{
			name: "two prefixes become one, which needs no set", from: changed(t, 2, same),
			to:   changed(t, 2, func(r *rules.Redirect) { r.OutboundExcludeCIDRs = r.OutboundExcludeCIDRs[:3] }),
			want: Replaced, sent: 1 << 16,
		},
		{
			name: "one prefix becomes two", to: changed(t, 2, same),
			from: changed(t, 2, func(r *rules.Redirect) { r.OutboundExcludeCIDRs = r.OutboundExcludeCIDRs[:3] }),
			want: Replaced, sent: 1 << 16,
		},
		{
			name: "one prefix, while older connections are counted", want: Updated, sent: 400,
			from: changed(t, 100, func(r *rules.Redirect) { r.KeepEstablished = true }),
			to:   changed(t, 100, func(r *rules.Redirect) { r.KeepEstablished = true; otherPrefix(r) }),
		},
		{
			name: "one prefix, after somebody has removed all", from: changed(t, 100, same), to: changed(t, 100, otherPrefix),
			between: func(t *testing.T, ns *netns.NS) {
				if _, err := Remove(ns); err != nil {
					t.Fatal(err)
				}
			},
			want: Created, sent: 1 << 16,
		},
		{
			name: "one prefix, after somebody has made it another ruleset", from: changed(t, 100, same), to: changed(t, 100, otherPrefix),
			between: func(t *testing.T, ns *netns.NS) {
				if _, err := changed(t, 2, same).Apply(ns); err != nil {
					t.Fatal(err)
				}
			},
			want: Updated, sent: 1 << 16,
		},
		{
			name: "one prefix, after somebody has removed the routes", from: changed(t, 100, same), to: changed(t, 100, otherPrefix),
			between: func(t *testing.T, ns *netns.NS) {
				command(t, ns, "", "ip", "-6", "address", "del", "::6/128", "dev", "lo")
			},
			want: Updated, sent: 400,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			ns := netnstest.New(t)
			if _, err := row.from.Apply(ns); err != nil {
				t.Fatal(err)
			}
			found, err := row.from.Apply(ns)
			if err != nil || found.Outcome != Unchanged || found.Generation == 0 {
				t.Fatalf("%+v, %v", found, err)
			}
			if row.between != nil {
				row.between(t, ns)
			}
			if row.forget {
				found.Generation = 0
			}
			got, err := row.from.Change(ns, row.to, found.Generation)
			if err != nil || got.Outcome != row.want || got.Bytes > row.sent {
				t.Errorf("%+v, %v; want %s by at most %d bytes", got, err, row.want, row.sent)
			}
			again, err := row.to.Apply(ns)
			if err != nil || again.Outcome != Unchanged {
				t.Errorf("not all was there: %+v, %v", again, err)
			}
			if got.Outcome != Created && got.Generation != again.Generation {
				t.Errorf("generation %d is told, and it is %d", got.Generation, again.Generation)
			}
		})
	}
}

// The kernel is not asked what it has: a change of an element that nobody has written since is one message there and one back.
func TestChangeReadsNothing(t *testing.T) {
	from, to := changed(t, 1000, same), changed(t, 1000, otherPrefix)
	ns := netnstest.New(t)
	if _, err := from.Apply(ns); err != nil {
		t.Fatal(err)
	}
	found, err := from.Apply(ns)
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		if result, done := from.changeSets(to, found.Generation); !done || result.Elements != 2000 {
			t.Errorf("%+v, done: %t", result, done)
		}
		// That was another generation.
		if result, done := to.changeSets(from, found.Generation); done {
			t.Errorf("%+v, from a generation that is over", result)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
