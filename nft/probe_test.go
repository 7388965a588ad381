package nft

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestThisKernelSupportsAllFeatures(t *testing.T) {
	netnstest.RequireRoot(t)
	features, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	found := map[Feature]bool{}
	for _, s := range features {
		found[s.Feature] = true
		if s.Err != nil {
			t.Error(s.Err)
		}
	}
	for _, f := range []Feature{
		FeatureNetlink, FeatureTables, FeatureNAT, FeatureRedirect, FeatureOwner, FeatureInterval,
		FeatureZone, FeatureRoute, FeatureTProxy,
	} {
		if !found[f] {
			t.Errorf("%s is not probed", f.Name)
		}
	}
}

func TestProbeChangesNothingAndLeaksNothing(t *testing.T) {
	ns := netnstest.New(t)
	before := countResources(t)
	for range 5 {
		if err := ns.Do(func() error { _, err := probe(); return err }); err != nil {
			t.Fatal(err)
		}
	}
	checkEmpty(t, ns)
	if list := nftCommand(t, ns, "", "list", "ruleset"); list != "" {
		t.Errorf("remaining tables, want none:\n%s", list)
	}
	if got, want := generationOf(t, ns), generationOf(t, netnstest.New(t)); got != want {
		t.Errorf("generation %d, want %d, as in a new namespace", got, want)
	}
	probeCache.Lock()
	probeCache.features = nil
	probeCache.Unlock()
	if _, err := Probe(); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "all descriptors and namespaces are released", func() bool {
		after := countResources(t)
		// The new namespace for the comparison of the generation is still open.
		return after.descriptors <= before.descriptors+1 && after.namespaces <= before.namespaces+1
	})
}

// TestAMissingFeatureIsNamed simulates the answers of kernels that lack features.
func TestAMissingFeatureIsNamed(t *testing.T) {
	ns := netnstest.New(t)
	allExceptNetlink := []Feature{
		FeatureTables, FeatureNAT, FeatureRedirect, FeatureOwner, FeatureInterval, FeatureZone,
		FeatureRoute, FeatureTProxy,
	}
	for _, row := range []struct {
		name string
		// rejects reports whether the kernel rejects a message about a table of the probe.
		rejects func(msg uint16, table string) bool
		errno   unix.Errno
		missing []Feature
	}{
		{"all features", func(uint16, string) bool { return false }, 0, nil},
		{
			"no nf_tables", func(msg uint16, _ string) bool {
				return msg == unix.NFNL_MSG_BATCH_BEGIN
			},
			unix.EOPNOTSUPP, allExceptNetlink,
		},
		{
			"no inet tables", func(msg uint16, _ string) bool {
				return msg == messageType(unix.NFT_MSG_NEWTABLE)
			},
			unix.EAFNOSUPPORT, allExceptNetlink,
		},
		{
			"no tproxy", func(msg uint16, table string) bool {
				return msg == messageType(unix.NFT_MSG_NEWRULE) && table == tableOf(FeatureTProxy)
			}, unix.ENOENT, []Feature{FeatureTProxy},
		},
		{
			"no NAT in inet tables", func(msg uint16, table string) bool {
				return (msg == messageType(unix.NFT_MSG_NEWCHAIN) ||
					msg == messageType(unix.NFT_MSG_NEWRULE)) &&
					(table == tableOf(FeatureNAT) || table == tableOf(FeatureRedirect))
			}, unix.ENOENT, []Feature{FeatureNAT, FeatureRedirect},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
				var answers [][]byte
				for _, m := range split(t, request) {
					if row.rejects(m.Header.Type, tableName(m.Data)) {
						answers = append(answers, encodeError(m.Header.Seq, row.errno, 0))
					}
				}
				return append(answers, kernel(request)...)
			})
			features, err := c.probe()
			if err != nil {
				t.Fatal(err)
			}
			var missing []Feature
			for _, s := range features {
				if s.Err == nil {
					continue
				}
				missing = append(missing, s.Feature)
				if !IsNotSupported(s.Err) || IsNotPermitted(s.Err) || !errors.Is(s.Err, row.errno) {
					t.Errorf("error %v, want an error of a missing feature that wraps %v", s.Err, row.errno)
				}
				for _, want := range []string{
					s.Feature.Name, s.Feature.Option, ", module nf", s.Feature.Since,
				} {
					if !strings.Contains(s.Err.Error(), want) {
						t.Errorf("error %v, want an error that contains %q", s.Err, want)
					}
				}
			}
			if !slices.Equal(missing, row.missing) {
				t.Errorf("missing features %v, want %v", missing, row.missing)
			}
		})
	}
	c := scripted(t, nil, func([]byte, func([]byte) [][]byte) [][]byte {
		return [][]byte{encodeError(0, unix.EPERM, 0)}
	})
	if _, err := c.probe(); !IsNotPermitted(err) || IsNotSupported(err) {
		t.Errorf("error %v, want a permission error", err)
	}
	c = scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		return append([][]byte{encodeError(split(t, request)[2].Header.Seq, unix.ENOMEM, 0)},
			kernel(request)...)
	})
	if features, err := c.probe(); !errors.Is(err, unix.ENOMEM) || IsNotSupported(err) {
		t.Errorf("out of memory: features %v, error %v, want the error", features, err)
	}
}

// TestOnlyFeaturesThatTheRulesetNeedsAreNamed checks the error of a rejected transaction on a
// kernel without TPROXY.
func TestOnlyFeaturesThatTheRulesetNeedsAreNamed(t *testing.T) {
	probeCache.Lock()
	cached := probeCache.features
	probeCache.features = []Support{{
		FeatureTProxy, &UnsupportedError{Feature: FeatureTProxy, Err: unix.ENOENT},
	}}
	probeCache.Unlock()
	t.Cleanup(func() {
		probeCache.Lock()
		defer probeCache.Unlock()
		probeCache.features = cached
	})
	redirect, tproxy := compileWith(captureAll), compileWith(func(r *rules.Redirect) {
		captureAll(r)
		r.Mode = rules.ModeTProxy
	})
	for _, row := range []struct {
		name  string
		rs    *rules.Ruleset
		errno unix.Errno
		want  bool
	}{
		{"the ruleset needs TPROXY", &tproxy, unix.ENOENT, true},
		{"the ruleset does not need TPROXY", &redirect, unix.ENOENT, false},
		{"no memory", &tproxy, unix.ENOMEM, false},
	} {
		err := diagnose(&KernelError{Message: "add rule", Errno: row.errno}, row.rs)
		if IsNotSupported(err) != row.want || !errors.Is(err, row.errno) {
			t.Errorf("%s: error %v; want an error that names TPROXY: %t", row.name, err, row.want)
		}
	}
}

// tableOf returns the name of the table that the probe of a feature uses.
func tableOf(f Feature) string {
	i := slices.IndexFunc(probes(), func(p featureProbe) bool { return p.feature == f })
	return probes()[i].table(i + 1).Name
}

// tableName returns the name of a message's table. Messages about tables, chains, rules and sets
// have the same attribute for this name.
func tableName(body []byte) string {
	if len(body) < 4 {
		return ""
	}
	return attributes(body[4:]).Text(unix.NFTA_TABLE_NAME)
}
