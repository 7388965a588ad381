package credential

import (
	"encoding/json"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// exits records the consecutive exits of agents of this node because of their credentials.
type exits struct {
	Count  int       `json:"count"`
	Last   time.Time `json:"last"`
	Reason string    `json:"why"` // of the last exit
}

// The minimum time between two exits doubles with each exit, from minExitInterval up to
// maxExitInterval.
const (
	minExitInterval = time.Minute
	maxExitInterval = time.Hour
)

// loadExits reads the record. A missing, unreadable or damaged record counts as no exits.
func loadExits(path string) exits {
	var e exits
	text, err := file.ReadRegular(path)
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

// nextAllowed returns the earliest time of the next exit, or the zero time if there was no exit. If
// the clock was set back, so that the last exit is later than begin, when the monitor was created,
// the exit counts as one at begin. The result has the monotonic reading of begin.
func (e exits) nextAllowed(begin time.Time) time.Time {
	if e.Count == 0 {
		return time.Time{}
	}
	interval := maxExitInterval
	if e.Count < 7 { // from the seventh exit on the doubled interval exceeds maxExitInterval
		interval = min(maxExitInterval, minExitInterval<<(e.Count-1))
	}
	return begin.Add(interval - max(0, begin.Sub(e.Last)))
}
