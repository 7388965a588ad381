package kernels_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/kernels"
)

func TestTableContainsTheResults(t *testing.T) {
	k := kernels.Kernel{Version: "5.10", Arch: "amd64", Release: "Debian 11"}
	lacks := map[compat.BackendName]string{compat.BackendNFT: "no nf_tables (CONFIG_NF_TABLES)"}
	got := kernels.Table([]kernels.Result{
		{Kernel: k, Modules: kernels.ModuleSets[0], Auto: compat.BackendNFT, Tests: 40, Passed: 39},
		{
			Kernel: k, Modules: kernels.ModuleSets[1], Auto: compat.BackendLegacy, Refused: lacks,
			Tests: 9, Passed: 9, Facts: kernels.Facts{Hooks: true, Destroy: true},
		},
		{Kernel: k, Modules: kernels.ModuleSets[1], Auto: compat.BackendLegacy, Refused: lacks},
		{
			Kernel: k, Modules: kernels.ModuleSets[2], Auto: compat.BackendNFT,
			Refused: map[compat.BackendName]string{compat.BackendLegacy: "no ip_tables"},
		},
	})
	want := "" +
		"| Linux | modules | `--backend auto` chooses | `--backend nft` | `--backend legacy` | optional features | tests passed |\n" +
		"|---|---|---|---|---|---|---|\n" +
		"| 5.10 amd64, Debian 11 | all modules | nft | works | works |  | 39 of 40 |\n" +
		"| 5.10 amd64, Debian 11 | no nf_tables | iptables-legacy | rejected \\* | works | list of hooks, destroy | 9 of 9 |\n" +
		"| 5.10 amd64, Debian 11 | no nf_tables | iptables-legacy | rejected \\* | works |  | 0 of 0 |\n" +
		"| 5.10 amd64, Debian 11 | no iptables-legacy | nft | works | rejected \\*\\* |  | 0 of 0 |\n" +
		"\n\\* `no nf_tables (CONFIG_NF_TABLES)`\n" +
		"\n\\*\\* `no ip_tables`\n"
	_, table, _ := strings.Cut(got, "\n\n")
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
