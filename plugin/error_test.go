package plugin_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

// specCodes contains the codes of the specification by their names in Go.
var specCodes = map[string]uint{
	"ErrIncompatibleCNIVersion":      types.ErrIncompatibleCNIVersion,
	"ErrUnsupportedField":            types.ErrUnsupportedField,
	"ErrUnknownContainer":            types.ErrUnknownContainer,
	"ErrInvalidEnvironmentVariables": types.ErrInvalidEnvironmentVariables,
	"ErrIOFailure":                   types.ErrIOFailure,
	"ErrDecodingFailure":             types.ErrDecodingFailure,
	"ErrInvalidNetworkConfig":        types.ErrInvalidNetworkConfig,
	"ErrInvalidNetNS":                types.ErrInvalidNetNS,
	"ErrTryAgainLater":               types.ErrTryAgainLater,
	"ErrPluginNotAvailable":          types.ErrPluginNotAvailable,
	"ErrLimitedConnectivity":         types.ErrLimitedConnectivity,
	"ErrInternal":                    types.ErrInternal,
}

// TestAllCodesAreDocumented checks that the package's documentation lists exactly the codes of all
// errors that the program returns.
func TestAllCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[uint]bool{}
	for _, row := range regexp.MustCompile(`(?m)^//\t *(\d+)  `).FindAllStringSubmatch(string(text),
		-1) {
		documented[mustParse(t, row[1])] = true
	}
	returned := map[uint]bool{types.ErrIncompatibleCNIVersion: true} // by package skel
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if code, known := specCodes[n.Sel.Name]; known {
					returned[code] = true
				} else if pkg, _ := n.X.(*ast.Ident); pkg != nil && pkg.Name == "types" &&
					strings.HasPrefix(n.Sel.Name, "Err") && n.Sel.Name != "Error" {
					t.Errorf("%s: the code of %s is unknown", name, n.Sel.Name)
				}
			case *ast.ValueSpec:
				if value, isCode := codeOf(n); isCode {
					returned[mustParse(t, value)] = true
				}
			}
			return true
		})
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(returned)),
		slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("codes (-returned +documented):\n%s", diff)
	}
}

// codeOf returns the value of a constant that is one of the plugin's codes.
func codeOf(spec *ast.ValueSpec) (string, bool) {
	if !strings.HasPrefix(spec.Names[0].Name, "Code") || len(spec.Values) != 1 {
		return "", false
	}
	if value, isLiteral := spec.Values[0].(*ast.BasicLit); isLiteral {
		return value.Value, true
	}
	return "", false
}

func mustParse(t testing.TB, text string) uint {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint(n)
}
