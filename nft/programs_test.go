package nft

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestUnknownExpressionsOfProgramsAreListed loads the recorded rules of programs (see
// testdata/programs/README.md), and lists the expressions that the model cannot represent.
func TestUnknownExpressionsOfProgramsAreListed(t *testing.T) {
	got := new(strings.Builder)
	for _, file := range programFiles(t, filepath.Join("testdata", "programs", "*.nft")) {
		ns := netnstest.New(t)
		load(t, ns, contents(t, file))
		listUnknowns(t, got, filepath.Base(file), ns)
	}
	golden(t, "programs", got.String())
}

// TestUnknownExpressionsOfIptablesRulesAreListed loads the recordings of compat/save with
// iptables-nft, and lists the expressions that the model cannot represent.
func TestUnknownExpressionsOfIptablesRulesAreListed(t *testing.T) {
	got := new(strings.Builder)
	saved := filepath.Join("..", "compat", "save", "testdata", "programs", "*.save")
	for _, file := range programFiles(t, saved) {
		ns := netnstest.New(t)
		createReferencedObjects(t, ns, contents(t, file))
		restorer := "iptables-nft-restore"
		if strings.HasSuffix(file, "-v6.save") {
			restorer = "ip6tables-nft-restore"
		}
		restore(t, ns, restorer, contents(t, file))
		listUnknowns(t, got, filepath.Base(file), ns)
	}
	golden(t, "programs-xtables", got.String())
}

func programFiles(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, error %v, want at least one file", pattern, len(files), err)
	}
	return files
}

func contents(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// listUnknowns writes name and the unknown expressions of the namespace's tables to w.
func listUnknowns(t *testing.T, w *strings.Builder, name string, ns *netns.NS) {
	t.Helper()
	rs, err := ReadAll(ns)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	checkHandles(t, ns, rs)
	w.WriteString(name + "\n" + rulestest.Unknowns(rs.Tables) + "\n")
}

// createReferencedObjects creates the ipsets and the nfacct counters to which the rules refer.
// Without them the kernel rejects the rules.
func createReferencedObjects(t *testing.T, ns *netns.NS, text string) {
	t.Helper()
	err := ns.Do(func() error {
		words := strings.Fields(text)
		created := map[string]bool{}
		for i, word := range words[:len(words)-2] {
			name := words[i+1]
			if created[name] {
				continue
			}
			switch word {
			case "--match-set":
				// The last word of the match is src, dst or a comma-separated list, with one item
				// for each part of an element.
				kind := "hash:net"
				if strings.Contains(words[i+2], ",") {
					kind = "hash:ip,port"
				}
				if err := netlink.IpsetCreate(name, kind,
					netlink.IpsetCreateOptions{}); err != nil {
					return err
				}
			case "--nfacct-name":
				if err := createCounter(name); err != nil {
					return err
				}
			default:
				continue
			}
			created[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// createCounter creates a counter of nfnetlink_acct, like "nfacct add"
// (linux/netfilter/nfnetlink_acct.h).
func createCounter(name string) error {
	const nfnlMsgAcctNew, nfacctName = 0, 1
	const request = unix.NFNL_SUBSYS_ACCT<<8 | nfnlMsgAcctNew
	r := nl.NewNetlinkRequest(request, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC})
	r.AddData(nl.NewRtAttr(nfacctName, nl.ZeroTerminated(name)))
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}
