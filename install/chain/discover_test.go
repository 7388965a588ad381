package chain_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/chain"
)

func TestDiscover(t *testing.T) {
	const list, single = `{"name":"n","plugins":[{"type":"a"}]}`, `{"name":"n","type":"a"}`
	for name, row := range map[string]struct {
		files   map[string]string
		named   string
		want    string // empty if there is none
		single  bool
		skipped []string
	}{
		"the first file in order of names is used": {
			files: map[string]string{
				"10-b.conflist": list, "05-a.conflist": list, "99.conflist": list,
			}, want: "05-a.conflist",
		},
		"single-plugin configurations are used": {
			files: map[string]string{"10-a.conf": single, "20-b.conflist": list}, want: "10-a.conf",
			single: true,
		},
		"files with the extension json are used": {
			files: map[string]string{"10-a.json": single, "20-b.conflist": list}, want: "10-a.json",
			single: true,
		},
		"a single-plugin configuration takes precedence over a list of the same name": {
			files: map[string]string{"10-a.conflist": list, "10-a.conf": single}, want: "10-a.conf",
			single: true,
		},
		"other files are ignored": {
			files: map[string]string{
				"00-a.conflist.cilium_bak": list, "01-a.txt": list, ".sluice-1.tmp": list,
				"02": single, "x.conf": single,
			}, want: "x.conf", single: true,
		},
		"an invalid file is skipped": {
			files: map[string]string{
				"01.conflist": `{`, "02.conf": list, "03.conflist": single, "04.conflist": list,
			}, want: "04.conflist",
			skipped: []string{"01.conflist", "02.conf", "03.conflist"},
		},
		"an unreadable file is skipped": {
			files: map[string]string{"01.conflist": "unreadable", "04.conflist": list},
			want:  "04.conflist", skipped: []string{"01.conflist"},
		},
		"the directory is empty": {},
		"no file is valid": {
			files: map[string]string{"01.conflist": ``}, skipped: []string{"01.conflist"},
		},
		"the configured file is used": {
			files: map[string]string{"01.conflist": list, "10-b.conflist": list},
			named: "10-b.conflist", want: "10-b.conflist",
		},
		"no other file replaces a missing configured file": {
			files: map[string]string{"01.conflist": list}, named: "10-b.conflist",
		},
		"a list replaces the configured single-plugin configuration of the same name": {
			files: map[string]string{"10-b.conflist": list}, named: "10-b.conf",
			want: "10-b.conflist",
		},
		"a single-plugin configuration replaces the configured list of the same name": {
			files: map[string]string{"10-b.conf": single}, named: "10-b.conflist", want: "10-b.conf",
			single: true,
		},
		"the configured name takes precedence over its other form": {
			files: map[string]string{"10-b.conf": single, "10-b.conflist": list},
			named: "10-b.conflist", want: "10-b.conflist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var files []chain.File
			for name, data := range row.files {
				f := chain.File{Name: name, Data: []byte(data)}
				if data == "unreadable" {
					f = chain.File{Name: name, Err: fs.ErrPermission}
				}
				files = append(files, f)
			}
			choice, skipped, err := chain.Discover(files, row.named)
			if choice.Name != row.want || choice.SinglePlugin != row.single ||
				errors.Is(err, chain.ErrNone) != (row.want == "") {
				t.Errorf("chosen %q, single-plugin %t, error %v; want %q, single-plugin %t", choice.Name,
					choice.SinglePlugin, err, row.want, row.single)
			}
			var names []string
			for _, s := range skipped {
				names = append(names, s.Name)
			}
			if diff := cmp.Diff(row.skipped, names); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
}
