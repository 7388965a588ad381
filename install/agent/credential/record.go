package credential

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// exits records the consecutive exits of agents of this node because of credentials.
type exits struct {
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
	Why   string    `json:"why"`
}

// firstPause and maxPause are the limits of the time between exits, which doubles.
const (
	firstPause = time.Minute
	maxPause   = time.Hour
)

// loadExits reads the record. A missing or damaged one counts no exits.
func loadExits(path string) exits {
	var e exits
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &e) != nil || e.Count < 0 {
		return exits{}
	}
	return e
}

func (e exits) store(path string) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = file.Write(path, append(text, '\n'), 0o600)
	return err
}

// forget removes the record.
func forget(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// next returns the earliest time of the next exit; zero if there was none. A time in the future was
// recorded with another clock and counts as now.
func (e exits) next(now time.Time) time.Time {
	if e.Count == 0 {
		return time.Time{}
	}
	pause := maxPause
	if e.Count < 7 { // 2^6 minutes are more than an hour
		pause = min(maxPause, firstPause<<(e.Count-1))
	}
	last := e.Last
	if last.After(now) {
		last = now
	}
	return last.Add(pause)
}
