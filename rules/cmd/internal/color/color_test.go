package color

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPaint(t *testing.T) {
	if got := Painter(true).Paint(Red, "no"); got != "\x1b[31mno\x1b[0m" {
		t.Errorf("a painter returns %q, want the text in red", got)
	}
	var none Painter
	if got := none.Paint(Red, "no"); got != "no" {
		t.Errorf("the zero painter returns %q, want the unchanged text", got)
	}
}

func TestFor(t *testing.T) {
	terminal := openTerminal(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, row := range []struct {
		name          string
		file          *os.File
		noColor, term string
		want          Painter
	}{
		{"a terminal", terminal, "", "xterm", true},
		{"a file", file, "", "xterm", false},
		{"NO_COLOR is set", terminal, "1", "xterm", false},
		{"a terminal without colors", terminal, "", "dumb", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", row.noColor)
			t.Setenv("TERM", row.term)
			if got := For(row.file); got != row.want {
				t.Errorf("the painter is %t, want %t", got, row.want)
			}
		})
	}
}

// openTerminal opens the slave of a new pseudoterminal (pty(7)).
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminals available: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return slave
}
