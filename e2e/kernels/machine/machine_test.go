package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/kernels/guest"
)

// The format is newc; see Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
func TestInitramfsContainsFilesAndParents(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := NewInitramfs(&out)
	a.Copy("/usr/bin/program", 0o755, source)
	a.Link("/usr/bin/link", "program")
	a.Bytes("/plan.json", 0o644, []byte("{}"))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"40755 dev ", "20600 dev/console ", "40755 usr ", "40755 usr/bin ",
		"100755 usr/bin/program program",
		"120777 usr/bin/link program", "100644 plan.json {}",
	}
	if diff := cmp.Diff(want, entries(t, out.Bytes())); diff != "" {
		t.Errorf("entries of the archive (-want +got):\n%s", diff)
	}
}

func TestTreeAddsTheFilesOfADirectory(t *testing.T) {
	source := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(source, "etc"), 0o755),
		os.WriteFile(filepath.Join(source, "etc/file"), []byte("text"), 0o600),
		os.Symlink("file", filepath.Join(source, "etc/link"))); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := NewInitramfs(&out)
	if err := errors.Join(a.Tree("/files", source), a.Close()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"40755 dev ", "20600 dev/console ", "40755 files ", "40755 files/etc ",
		"100600 files/etc/file text", "120777 files/etc/link file",
	}
	if diff := cmp.Diff(want, entries(t, out.Bytes())); diff != "" {
		t.Errorf("entries of the archive (-want +got):\n%s", diff)
	}
}

// entries returns the mode in octal, the name and the content of each entry of an archive.
func entries(t *testing.T, archive []byte) []string {
	t.Helper()
	const headerSize = 110
	var list []string
	for at := 0; ; {
		header := string(archive[at : at+headerSize])
		if !strings.HasPrefix(header, "070701") {
			t.Fatalf("offset %d of the archive: %q, want a newc header", at, header)
		}
		field := func(i int) int {
			n, err := strconv.ParseUint(header[6+8*i:14+8*i], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		mode, size, nameSize := field(1), field(6), field(11)
		name := strings.TrimSuffix(string(archive[at+headerSize:at+headerSize+nameSize]), "\x00")
		if name == "TRAILER!!!" {
			return list
		}
		begin := (at + headerSize + nameSize + 3) &^ 3
		list = append(list, fmt.Sprintf("%o %s %s", mode, name, archive[begin:begin+size]))
		at = (begin + size + 3) &^ 3
	}
}

func TestInitramfsReportsErrors(t *testing.T) {
	twice := NewInitramfs(&bytes.Buffer{})
	twice.Bytes("/a", 0o644, nil)
	twice.Link("/a", "b")
	absent := NewInitramfs(&bytes.Buffer{})
	absent.Copy("/a", 0o644, "/nowhere/a")
	for name, a := range map[string]*Initramfs{
		"duplicate name": twice, "missing file": absent,
	} {
		if err := a.Close(); err == nil {
			t.Errorf("%s: Close returns no error, want an error", name)
		}
	}
}

func TestReadConsoleReportsEventsAndReturnsTheLastLines(t *testing.T) {
	const mark = "\x1esluice "
	for _, row := range []struct {
		name, console string
		done          bool
		steps         int
		err           string
	}{
		{
			"all done",
			"[ 0.1] Linux\r\n" + mark + `{"Step":"a","Exit":{"Code":0}}` + "\r\n" + mark +
				`{"Done":true}` + "\r\n[ 4.3] reboot\r\n",
			true, 1, "",
		},
		{
			"the kernel panics", mark + `{"Step":"a","Exit":{"Code":0}}` + "\n[ 1.0] Kernel panic",
			false, 1, "",
		},
		{"the guest fails", mark + `{"Failed":"no plan"}` + "\n", false, 0, "no plan"},
		{"a damaged event", mark + `{"Step":` + "\n", false, 0, "event"},
	} {
		t.Run(row.name, func(t *testing.T) {
			steps := 0
			done, tail, err := readConsole(strings.NewReader(row.console), func(e guest.Event) {
				if e.Exit != nil {
					steps++
				}
			})
			if done != row.done || steps != row.steps || (err == nil) != (row.err == "") ||
				err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("done %v, want %v; %d steps, want %d; error %v, want %q", done, row.done, steps,
					row.steps, err, row.err)
			}
			if tail != row.console {
				t.Errorf("last lines %q, want %q", tail, row.console)
			}
		})
	}
}

func TestEmulatorPerArchitecture(t *testing.T) {
	for arch, want := range map[string]string{
		"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64", "s390x": "",
	} {
		if got := Emulator(arch); got != want {
			t.Errorf("%s: %q, want %q", arch, got, want)
		}
	}
	if _, err := (Machine{Arch: "s390x"}).Run(t.Context(), nil); err == nil {
		t.Error("Run with an unknown architecture: no error, want an error")
	}
}
