package release

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// A packagedFile is a file with the path at which a package installs it.
type packagedFile struct {
	destination string
	file
}

// addPackages writes the packages of the rules command for Debian and RPM.
func (r *Release) addPackages(arch string, program, license []byte, docs documents) (err error) {
	dir, err := os.MkdirTemp("", "package")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	contents := []packagedFile{
		{"/usr/bin/rules", file{"rules", 0o755, program}},
		{"/usr/share/doc/sluice-rules/copyright", file{"copyright", 0o644, license}},
	}
	for _, m := range docs.man {
		if strings.HasPrefix(m.name, Rules+".") {
			compressed, err := gzipBytes(m.content)
			if err != nil {
				return err
			}
			contents = append(contents, packagedFile{
				"/usr/share/man/man1/" + m.name + ".gz", file{m.name + ".gz", 0o644, compressed},
			})
		}
	}
	completionPaths := map[string]string{
		"rules.bash": "/usr/share/bash-completion/completions/rules",
		"_rules":     "/usr/share/zsh/vendor-completions/_rules",
		"rules.fish": "/usr/share/fish/vendor_completions.d/rules.fish",
	}
	for _, c := range docs.completions {
		contents = append(contents, packagedFile{completionPaths[c.name], c})
	}
	info := &nfpm.Info{
		Name: "sluice-rules", Arch: arch, Platform: "linux",
		Version: r.versionNumber(), Release: "1",
		Section: "net", Priority: "optional",
		Maintainer: "The Sluice authors <maintainers@sluice-mesh.github.io>", Vendor: "Sluice",
		Homepage: Home, License: "Apache-2.0",
		Description: "Program, check, explain and compare the traffic redirection of Istio " +
			"sidecars",
		MTime: r.Time, DisableGlobbing: true,
	}
	info.RPM.BuildHost = "sluice"
	for _, c := range contents {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, c.content, 0o644); err != nil {
			return err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: path, Destination: c.destination,
			FileInfo: &files.ContentFileInfo{
				Owner: "root", Group: "root", Mode: os.FileMode(c.mode), MTime: r.Time,
			},
		})
	}
	for _, p := range []struct {
		format   string
		packager nfpm.Packager
	}{{"deb", deb.Default}, {"rpm", rpm.DefaultRPM}} {
		var out bytes.Buffer
		if err := p.packager.Package(nfpm.WithDefaults(copyOf(info)), &out); err != nil {
			return fmt.Errorf("%s package for %s: %w", p.format, arch, err)
		}
		if err := r.add(fmt.Sprintf("sluice-rules_%s_%s.%s", r.versionNumber(), arch, p.format),
			out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// copyOf returns a copy of the info with copies of its contents, because a packager changes both.
func copyOf(info *nfpm.Info) *nfpm.Info {
	copied := *info
	copied.Contents = nil
	for _, c := range info.Contents {
		content, fileInfo := *c, *c.FileInfo
		content.FileInfo = &fileInfo
		copied.Contents = append(copied.Contents, &content)
	}
	return &copied
}
