package budgettest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// MaxResident returns the maximum resident memory of the process so far, in bytes. It includes the
// memory of the race detector: see [RaceDetector].
func MaxResident(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "\nVmHWM:")
	var kib int
	if _, err := fmt.Sscanf(line, "%d kB", &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
