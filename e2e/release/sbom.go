package release

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// addSBOM writes the SPDX document of a program, which lists the modules in the build information
// of the program.
func (r *Release) addSBOM(name, arch string, program []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("modules of %s: %w", name, err)
	}
	sum := sha256.Sum256(program)
	fileName := fmt.Sprintf("%s_%s_linux_%s.spdx.json", name, r.versionNumber(), arch)
	main := &spdx.Package{
		PackageName: name, PackageSPDXIdentifier: "Program", PackageVersion: r.Version,
		PackageDownloadLocation: "git+" + Home + "@" + r.Commit,
		PackageChecksums: []common.Checksum{{
			Algorithm: common.SHA256, Value: hex.EncodeToString(sum[:]),
		}},
		PackageHomePage:        Home,
		PackageSupplier:        &common.Supplier{Supplier: "Sluice", SupplierType: "Organization"},
		PackageLicenseDeclared: "Apache-2.0", PackageLicenseConcluded: "NOASSERTION",
		PackageCopyrightText: "NOASSERTION",
	}
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: fileName,
		DocumentNamespace: fmt.Sprintf("%s/releases/download/%s/%s#%x", Home, r.Version, fileName,
			sum[:8]),
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{Creator: "sluice-release", CreatorType: "Tool"}},
			Created:  r.Time.UTC().Format(time.RFC3339),
		},
		Packages: []*spdx.Package{main},
		Relationships: []*spdx.Relationship{
			newRelationship("DOCUMENT", common.TypeRelationshipDescribe, "Program"),
		},
	}
	addModule := func(module, moduleVersion string) {
		id := common.ElementID(fmt.Sprintf("Module-%d", len(document.Packages)))
		document.Packages = append(document.Packages, &spdx.Package{
			PackageName: module, PackageSPDXIdentifier: id, PackageVersion: moduleVersion,
			PackageDownloadLocation: "NOASSERTION",
			PackageLicenseDeclared:  "NOASSERTION", PackageLicenseConcluded: "NOASSERTION",
			PackageCopyrightText: "NOASSERTION",
			PackageExternalReferences: []*spdx.PackageExternalReference{{
				Category: common.CategoryPackageManager, RefType: "purl",
				Locator: packageURL(module, moduleVersion),
			}},
		})
		document.Relationships = append(document.Relationships,
			newRelationship("Program", common.TypeRelationshipDependsOn, id))
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		addModule(m.Path, m.Version)
	}
	addModule("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	var out bytes.Buffer
	if err := spdxjson.Write(document, &out, spdxjson.Indent("  ")); err != nil {
		return fmt.Errorf("%s: %w", fileName, err)
	}
	return r.add(fileName, out.Bytes())
}

// newRelationship returns a relationship between two elements of the document.
func newRelationship(
	from common.ElementID, relationshipType string, to common.ElementID,
) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: relationshipType,
		RefB: common.DocElementID{ElementRefID: to},
	}
}

// packageURL returns the package URL (purl) of a Go module.
func packageURL(module, moduleVersion string) string {
	return "pkg:golang/" + strings.ToLower(module) + "@" + moduleVersion
}
