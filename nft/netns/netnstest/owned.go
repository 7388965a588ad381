package netnstest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// OwnTable executes nft commands, which add a table with the flag owner, in one transaction of an
// nft process. The process owns the table until the test ends or release is called. release returns
// when the kernel has deleted the table.
func OwnTable(t testing.TB, ns *netns.NS, commands string) (release func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "table.nft")
	if err := os.WriteFile(file, []byte(commands), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(RequireBinary(t, "nft"), "--interactive")
	stdin, stdout, release := startUntilEOF(t, cmd, func() error { return ns.Do(cmd.Start) })
	if _, err := fmt.Fprintf(stdin, "include %q\nlist ruleset\n", file); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.Contains(lines.Text(), "flags owner") {
			return release
		}
	}
	t.Fatal("nft did not execute the commands")
	return nil
}
