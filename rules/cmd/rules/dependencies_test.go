package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The command must start within milliseconds and is copied into other images, so it must not link
// packages that are large or start slowly.
func TestCommandLinksNoLargePackages(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		if pkg == "net/http" || pkg == "crypto/tls" || pkg == "go.uber.org/zap" ||
			strings.HasPrefix(pkg, "k8s.io/") {
			t.Errorf("the command links %s", pkg)
		}
	}
}
