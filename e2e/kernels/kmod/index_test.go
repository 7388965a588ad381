package kmod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/kernels/kmod"
)

var modules = kmod.Index{
	{Name: "nfnetlink", Aliases: []string{"net_pf_16_proto_12"}},
	{Name: "nf_tables", Aliases: []string{"nfnetlink_subsys_10"}, Needs: []string{"nfnetlink"}},
	{Name: "nf_nat", Needs: []string{"nf_conntrack"}},
	{Name: "nf_conntrack"},
	{
		Name: "nft_redir", Aliases: []string{"nft_expr_redir"},
		Needs: []string{"nf_tables", "nf_nat"},
	},
	{Name: "x_tables"},
	{Name: "nft_compat", Needs: []string{"nf_tables", "x_tables"}},
	{Name: "stray", Needs: []string{"absent"}},
}

func names(ix kmod.Index) []string {
	var list []string
	for _, m := range ix {
		list = append(list, m.Name)
	}
	return list
}

func TestWithoutRemovesDependents(t *testing.T) {
	want := []string{"nfnetlink", "nf_nat", "nf_conntrack", "x_tables", "stray"}
	if diff := cmp.Diff(want, names(modules.Without("nf_tables"))); diff != "" {
		t.Errorf("Without(nf_tables) (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(names(modules), names(modules.Without())); diff != "" {
		t.Errorf("Without() (-want +got)\n%s", diff)
	}
}

func TestOnlyKeepsDependencies(t *testing.T) {
	got := modules.Only(func(m kmod.Module) bool { return m.Name == "nft_redir" })
	if diff := cmp.Diff([]string{"nfnetlink", "nf_tables", "nf_nat", "nf_conntrack", "nft_redir"},
		names(got)); diff != "" {
		t.Errorf("nft_redir and its dependencies (-want +got)\n%s", diff)
	}
}

func TestOrderReturnsDependenciesFirst(t *testing.T) {
	for _, row := range []struct {
		name, request string
		want          []string
	}{
		{"by name", "nf_tables", []string{"nfnetlink", "nf_tables"}},
		{
			"by an alias with dashes, as the kernel requests it", "nft-expr-redir",
			[]string{"nfnetlink", "nf_tables", "nf_conntrack", "nf_nat", "nft_redir"},
		},
		{"unknown name", "netdev-ip_tables", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := modules.Order(row.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, names(got)); diff != "" {
				t.Errorf("order (-want +got)\n%s", diff)
			}
		})
	}
	if _, err := modules.Order("stray"); err == nil {
		t.Error("Order with a missing dependency: no error, want an error")
	}
}

func TestLoadingAMissingModuleIsAnError(t *testing.T) {
	if err := modules.Load("no-such"); err == nil {
		t.Error("Load of an unknown module: no error, want an error")
	}
	if err := (kmod.Index{{Name: "m", Path: "/nowhere/m.ko"}}).Load("m"); err == nil {
		t.Error("Load of a missing file: no error, want an error")
	}
}
