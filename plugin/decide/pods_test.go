package decide_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/decide/podfile"
)

// readPod reads a pod of testdata.
func readPod(t testing.TB, name string) *decide.Pod {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	workload, err := podfile.Read(file)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return workload.Pod
}

// podNames returns the names of all pods in testdata.
func podNames(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pods in testdata: %v", err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".yaml")
	}
	return files
}

// podJSON returns a pod of testdata in the form of the API server.
func podJSON(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err == nil {
		data, err = yaml.YAMLToJSON(data)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return data
}

// attachment returns the attachment of the pod from a runtime that passes no annotations.
func attachment(pod *decide.Pod) decide.Attachment {
	return decide.Attachment{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name}
}

func addresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// diff compares values that may contain addresses.
func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}))
}

func pointer[T any](value T) *T { return &value }
