package log_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/log"
	"github.com/sluice-mesh/sluice/plugin/log/options"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// TestOtherWritersGetEveryLine checks that other writers get every line too, one by one.
func TestOtherWritersGetEveryLine(t *testing.T) {
	var stderr bytes.Buffer
	var copied lines
	logger, closeFile := log.Open(options.Log{}, &stderr, &copied)
	defer closeFile()
	logger.Info("ADD")
	logger.Debug("left out")
	logger.Info("DEL")
	if len(copied) != 2 || strings.Join(copied, "") != stderr.String() {
		t.Errorf("the other writer got %q, want the two lines of standard error %q", copied,
			stderr.String())
	}
}

// lines records the argument of each call of Write.
type lines []string

func (l *lines) Write(line []byte) (int, error) {
	*l = append(*l, string(line))
	return len(line), nil
}

// TestLinesAreJSONObjects checks that every line is one JSON object, in the file and on standard
// error.
func TestLinesAreJSONObjects(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "sluice.log")
	var stderr bytes.Buffer
	for range 2 { // two processes
		logger, closeFile := log.Open(options.Log{File: file}, &stderr)
		logger.Debug("left out")
		logger.Info("ADD", zap.String("pod", "a\nb"))
		closeFile()
	}
	data, err := os.ReadFile(file)
	if err != nil || string(data) != stderr.String() {
		t.Errorf("file %q, error %v, want the lines of standard error %q", data, err, stderr.String())
	}
	if n := strings.Count(string(data), "\n"); n != 2 {
		t.Errorf("the file has %d lines, want 2: %s", n, data)
	}
	for text := range strings.Lines(string(data)) {
		var line struct{ Time, Level, Msg, Pod string }
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Time == "" ||
			line.Level != "info" || line.Msg != "ADD" || line.Pod != "a\nb" {
			t.Errorf("line %q: decoded %+v, error %v, want the logged line", text, line, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("file: %v, error %v, want mode 0600", info, err)
	}
}

// TestFullFilesAreRotated checks that the file is rotated at its maximum size, and that old files
// beyond the maximum number or age are removed.
func TestFullFilesAreRotated(t *testing.T) {
	now := time.Now()
	// The times in the names determine the order of the files, and the modification times their
	// age.
	const first, second, third = "sluice-2026-01-01T00-00-00.000000.log", "sluice-2026-01-02T03-04-05.678901.log", "sluice-2026-01-02T13-04-05.678901.log"
	for _, tc := range []struct {
		name          string
		backups, days int
		// want contains the older files that remain. The file that is rotated now also counts as
		// one of the backups.
		want []string
	}{
		{"all are kept", 0, 0, []string{first, second, third}},
		{"two are kept", 2, 0, []string{third}},
		{"the files of a day are kept", 0, 1, []string{second}},
		{"two of a day are kept", 2, 1, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name string, size int, age time.Duration) {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
					t.Fatal(err)
				}
			}
			write("sluice.log", 1<<20, 0)
			write(first, 1, 48*time.Hour)
			write(second, 1, time.Hour)
			write(third, 1, 48*time.Hour)
			var stderr bytes.Buffer
			o := options.Log{
				File: filepath.Join(dir, "sluice.log"), MaxMegabytes: 1, Backups: tc.backups,
				MaxDays: tc.days,
			}
			logger, closeFile := log.Open(o, &stderr)
			logger.Info("ADD")
			closeFile()
			if strings.Contains(stderr.String(), "error") {
				t.Errorf("standard error contains an error: %s", stderr.String())
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var old []string
			rotated := false
			for _, e := range entries {
				info, err := e.Info()
				if err != nil {
					t.Fatal(err)
				}
				switch name := e.Name(); {
				case name == "sluice.log" && info.Size() == int64(stderr.Len()):
				case strings.HasPrefix(name, "sluice-2") && info.Size() == 1<<20: // 2 is the first digit of the year
					rotated = true
				default:
					old = append(old, name)
				}
			}
			if !rotated || !slices.Equal(old, tc.want) {
				t.Errorf("rotated: %t, want true; older files %v, want %v", rotated, old, tc.want)
			}
		})
	}
}

// TestRotationKeepsOtherFiles checks that foreign files of any age are kept, even if their names
// begin and end like the names of rotated files.
func TestRotationKeepsOtherFiles(t *testing.T) {
	for name, others := range map[string][]string{
		"sluice-cni": {
			"sluice-cni-kubeconfig", "sluice-cni-status.json",
			"sluice-cni-2026-01-02T03-04-05.678901.log",
		},
		"istio.log": {
			"istio-cni.log", "istio-1.log", "istio-.log", "istio-2026-01-02.log",
			"istio-2026-01-02T03-04-05.log",
			"istio-2026-01-02T3-04-05.678901.log", "istio-2026-01-02T03-04-05,678901.log",
			"istio-2026-13-02T03-04-05.678901.log",
			"istio-cni-2026-01-02T03-04-05.678901.log", "istio-2026-01-02T03-04-05.678901.log.gz",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, other := range others {
				path, longAgo := filepath.Join(dir, other), time.Unix(0, 0)
				if err := errors.Join(os.WriteFile(path, nil, 0o600),
					os.Chtimes(path, longAgo, longAgo)); err != nil {
					t.Fatal(err)
				}
			}
			o := options.Log{
				File: filepath.Join(dir, name), MaxMegabytes: 1, Backups: 1, MaxDays: 1,
			}
			logger, closeFile := log.Open(o, io.Discard)
			for range 3 { // the file is rotated twice
				logger.Info("ADD", zap.String("long", strings.Repeat("x", 600<<10)))
			}
			closeFile()
			for _, other := range others {
				if _, err := os.Stat(filepath.Join(dir, other)); err != nil {
					t.Error(err)
				}
			}
			if all, err := os.ReadDir(dir); err != nil || len(all) != len(others)+2 {
				t.Errorf("files: %v, error %v; want the others, the log and one backup", all, err)
			}
		})
	}
}

// TestConcurrentWritersLoseNoLine checks that with concurrent writes and rotations each line is
// complete and in exactly one file, and that only full files are rotated.
func TestConcurrentWritersLoseNoLine(t *testing.T) {
	dir := t.TempDir()
	o := options.Log{File: filepath.Join(dir, "sluice.log"), MaxMegabytes: 1}
	const writers, lines, maxLine = 8, 30, 21 << 10
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range lines {
				logger, closeFile := log.Open(o, io.Discard)
				logger.Info("ADD", zap.Int("line", w*lines+i),
					zap.String("long", strings.Repeat("x", 20<<10)))
				closeFile()
			}
		})
	}
	group.Wait()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 2 {
		t.Errorf("files %v, error %v, want at least one rotated file", files, err)
	}
	seen := map[int]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || file != o.File && len(data) <= 1<<20-maxLine {
			t.Errorf("%s: %d bytes, error %v, want a full file", file, len(data), err)
		}
		for text := range strings.Lines(string(data)) {
			var line struct{ Line int }
			if err := json.Unmarshal([]byte(text), &line); err != nil || seen[line.Line] {
				t.Errorf("line %.60q is not JSON, or exists twice: %v", text, err)
			}
			seen[line.Line] = true
		}
	}
	if len(seen) != writers*lines {
		t.Errorf("the files have %d lines, want %d", len(seen), writers*lines)
	}
}

// TestFilesThatCannotBeUsedAreSkipped checks that a file is skipped, with a message on standard
// error, if it cannot be written or a write could block.
func TestFilesThatCannotBeUsedAreSkipped(t *testing.T) {
	dir := t.TempDir()
	pipe, plain := filepath.Join(dir, "pipe"), filepath.Join(dir, "plain")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"a directory": dir, "a named pipe": pipe, "a path below a file": plain + "/x",
		"a path in a file system without files": "/proc/nowhere/x",
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			logger, closeFile := log.Open(options.Log{File: file}, &stderr)
			logger.Info("ADD")
			closeFile()
			if text := stderr.String(); strings.Count(text, "\n") != 2 ||
				!strings.Contains(text, `"msg":"ADD"`) || !strings.Contains(text, "log file: ") {
				t.Errorf("standard error %q, want the line and the error of the file", text)
			}
		})
	}
}

// TestLevelsEqualZapsLevels compares the levels with zap's, because the parser of the configuration
// does not import zap.
func TestLevelsEqualZapsLevels(t *testing.T) {
	for level, want := range map[options.Level]zapcore.Level{
		options.Debug: zapcore.DebugLevel, options.Info: zapcore.InfoLevel,
		options.Warn:  zapcore.WarnLevel,
		options.Error: zapcore.ErrorLevel, options.Fatal: zapcore.FatalLevel,
		options.None: zapcore.FatalLevel + 1,
	} {
		if zapcore.Level(level) != want {
			t.Errorf("level %d is not zap's %d", level, want)
		}
	}
}

// TestLevels checks which lines each level logs. The names of the levels are Istio's.
func TestLevels(t *testing.T) {
	for word, lines := range map[string]int{
		"debug": 4, "INFO": 3, "warn": 2, "error": 1, "fatal": 0, "none": 0,
	} {
		level, err := options.ParseLevel(word)
		if err != nil {
			t.Error(err)
			continue
		}
		var stderr bytes.Buffer
		file := filepath.Join(t.TempDir(), "log")
		logger, closeFile := log.Open(options.Log{Level: level, File: file}, &stderr)
		logger.Debug("a")
		logger.Info("b")
		logger.Warn("c")
		logger.Error("d")
		closeFile()
		if n := strings.Count(stderr.String(), "\n"); n != lines {
			t.Errorf("%s: %d lines, want %d", word, n, lines)
		}
		if _, err := os.Stat(file); (err == nil) != (lines > 0) {
			t.Errorf("%s: file: error %v, want a file only if there are lines", word, err)
		}
	}
	if _, err := options.ParseLevel("warning"); err == nil ||
		!strings.Contains(err.Error(), options.LevelWant) {
		t.Errorf("error %v of an unknown level, want the names of the levels", err)
	}
}
