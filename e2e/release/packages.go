package release

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// addPackages writes the deb and rpm packages of the rules command.
func (r *Release) addPackages(arch string, program, license []byte, docs documents) (err error) {
	dir, err := os.MkdirTemp("", "package")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files := map[string][]byte{"rules": program, "copyright": license}
	for _, m := range docs.man {
		if files[m.name+".gz"], err = gzipBytes(m.content); err != nil {
			return err
		}
	}
	for _, c := range docs.completions {
		files[c.name] = c.content
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	packagers := map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM}
	for _, format := range []string{"deb", "rpm"} {
		var text, out bytes.Buffer
		if err := templates.ExecuteTemplate(&text, "nfpm.yaml", map[string]string{
			"Dir": dir, "Arch": arch, "Number": r.versionNumber(), "Home": Home,
			"MTime": r.Time.UTC().Format(time.RFC3339),
		}); err != nil {
			return err
		}
		// A packager changes the configuration, so each gets its own.
		config, err := nfpm.Parse(&text)
		if err == nil {
			err = packagers[format].Package(&config.Info, &out)
		}
		if err != nil {
			return fmt.Errorf("%s package for %s: %w", format, arch, err)
		}
		if err := r.add(fmt.Sprintf("sluice-rules_%s_%s.%s", r.versionNumber(), arch, format),
			out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
