package release

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// A module is a Go module in an SPDX document. PackageURL is its purl.
type module struct{ ID, Path, Version, PackageURL string }

// addSBOM writes the SPDX document of a program, which lists the dependencies in the program's build
// information, and the standard library.
func (r *Release) addSBOM(name, arch string, program []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("modules of %s: %w", name, err)
	}
	var modules []module
	addModule := func(path, version string) {
		modules = append(modules, module{
			fmt.Sprintf("Module-%d", len(modules)+1), path, version,
			"pkg:golang/" + strings.ToLower(path) + "@" + version,
		})
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		addModule(m.Path, m.Version)
	}
	addModule("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	sum := sha256.Sum256(program)
	fileName := fmt.Sprintf("%s_%s_linux_%s.spdx.json", name, r.versionNumber(), arch)
	return r.addRendered(fileName, "spdx.json", struct {
		*Release
		FileName, Home, Program, SHA256, Created string
		Modules                                  []module
	}{
		r, fileName, Home, name, hex.EncodeToString(sum[:]), r.Time.UTC().Format(time.RFC3339),
		modules,
	})
}
