package file

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNewer is wrapped by the error of [DecodeVersioned] for content of a newer version.
var ErrNewer = errors.New("was written by a newer program")

// DecodeVersioned decodes a JSON object with a field version into value. It returns an error if the
// version is newer than the given one. It checks the version first, because a newer version may
// have fields of other types.
func DecodeVersioned(content []byte, version int, value any) error {
	var header struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &header); err != nil {
		return err
	}
	if header.Version > version {
		return fmt.Errorf("version %d %w; this one understands %d", header.Version, ErrNewer, version)
	}
	return json.Unmarshal(content, value)
}
