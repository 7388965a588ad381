package logs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"github.com/sluice-mesh/sluice/install/agent/logs"
)

func newLog(t *testing.T, level string) (*logs.Log, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	l, err := logs.New(level, true, &out)
	if err != nil {
		t.Fatal(err)
	}
	return l, &out
}

// TestRepeatedLinesAreSuppressed checks that a repeated message is logged a hundred times in ten
// seconds and then counted, and that other messages are still logged.
func TestRepeatedLinesAreSuppressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newLog(t, "info")
		suppressed := 0
		l.OnSuppressed(func() { suppressed++ })
		for i := range 1122 {
			l.Warn("too many open files", zap.Int("try", i))
		}
		l.Warn("something else")
		if n := strings.Count(out.String(), "too many open files"); n != 100 || suppressed != 1022 {
			t.Errorf("%d lines, want 100; %d suppressed, want 1022", n, suppressed)
		}
		if !strings.Contains(out.String(), "something else") {
			t.Error("another message is suppressed")
		}
		time.Sleep(10 * time.Second)
		out.Reset()
		l.Warn("too many open files")
		if !strings.Contains(out.String(), `"suppressed":1022`) {
			t.Errorf("the next period begins with %s, want the number of suppressed lines", out)
		}
	})
}

// TestLinesOfAllMessagesAreBounded checks that the number of lines with different messages is
// bounded too.
func TestLinesOfAllMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, out := newLog(t, "info")
		for i := range 5000 {
			l.Info(fmt.Sprint("message ", i))
		}
		if n := strings.Count(out.String(), "\n"); n != 1000 {
			t.Errorf("%d lines, want 1000", n)
		}
	})
}

// TestRecentKeepsTheLatestErrors checks that the latest warnings and errors are kept at any log
// level, one for each message, with the latest error.
func TestRecentKeepsTheLatestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLog(t, "none")
		begin := time.Now()
		l.Info("nothing wrong")
		l.Warn("the API server", zap.Error(errors.New("refused")))
		time.Sleep(time.Minute)
		l.Error("the disk", zap.Error(errors.New("full")))
		l.Warn("the API server", zap.Error(errors.New("timeout")))
		l.Named("library").Warn("not ours")
		got := l.Recent()
		want := []logs.Line{
			{
				First: begin, Last: begin.Add(time.Minute), Count: 2, Level: "warn",
				Message: "the API server", Error: "timeout",
			},
			{
				First: begin.Add(time.Minute), Last: begin.Add(time.Minute), Count: 1,
				Level: "error", Message: "the disk", Error: "full",
			},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the kept lines are %v\nwant %v", got, want)
		}
		for i := range 100 {
			l.Warn(fmt.Sprint(i))
		}
		if n := len(l.Recent()); n != 16 {
			t.Errorf("%d lines are kept, want 16", n)
		}
	})
}

// TestLinesOfLibrariesHaveOneMessage checks that log lines of libraries have the agent's format and
// the same message, and that they are not kept.
func TestLinesOfLibrariesHaveOneMessage(t *testing.T) {
	l, out := newLog(t, "debug")
	before := log.Writer()
	flags := log.Flags()
	t.Cleanup(func() {
		log.SetOutput(before)
		log.SetFlags(flags)
		klog.ClearLogger()
	})
	l.RedirectGlobalLoggers()
	klog.ErrorS(errors.New("refused"), "Failed to watch", "type", "pods")
	klog.Info("a line\nof two")
	klog.V(4).Info("for developers")
	log.Print("http: Accept error")
	l.Standard("net/http").Print("http: TLS handshake error\n")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		"Failed to watch", "a line\nof two", "http: Accept error", "http: TLS handshake error",
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), out)
	}
	for i, line := range lines {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil || got["line"] != want[i] ||
			got["msg"] != "message of a library" {
			t.Errorf("the line is %s, error %v; want the text %q", line, err, want[i])
		}
	}
	if len(l.Recent()) > 0 {
		t.Errorf("lines of libraries are kept: %v", l.Recent())
	}
}

func TestInvalidLevelIsAnError(t *testing.T) {
	if _, err := logs.New("loud", true, new(bytes.Buffer)); err == nil {
		t.Error("an invalid level was accepted")
	}
}
