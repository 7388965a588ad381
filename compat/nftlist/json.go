package nftlist

import (
	"encoding/json"
	"errors"
	"fmt"
)

// schemaVersion is the supported version of the format.
const schemaVersion = 1

type metaObject struct {
	Version *int `json:"json_schema_version"`
}

// readJSON reads the output of nft -j list ruleset.
func (in *reader) readJSON(text []byte) error {
	const want = "want the output of nft -j list ruleset"
	var document struct {
		Objects []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("%w; %s", err, want)
	}
	if document.Objects == nil {
		return errors.New(`there is no list "nftables": ` + want)
	}
	for i, object := range document.Objects {
		for kind, body := range object {
			if err := in.object(kind, body); err != nil {
				return fmt.Errorf("object %d, %s: %w", i+1, kind, err)
			}
		}
	}
	return nil
}

// object stores an object. Other objects, such as maps and named counters, are relevant only for
// statements that use them, which are unsupported.
func (in *reader) object(kind string, body json.RawMessage) error {
	switch kind {
	case "metainfo":
		m, err := decoded[metaObject](body)
		if err == nil && m.Version != nil && *m.Version != schemaVersion {
			err = fmt.Errorf("version %d of the format: want %d", *m.Version, schemaVersion)
		}
		return err
	case "table":
		t, err := decoded[tableObject](body)
		in.tables = append(in.tables, t)
		return err
	case "chain":
		c, err := decoded[chainObject](body)
		in.chains = append(in.chains, c)
		return err
	case "rule":
		r, err := decoded[ruleObject](body)
		in.addRule(r)
		return err
	case "set":
		s, err := decoded[setObject](body)
		in.sets[place{s.Family, s.Table, s.Name}] = s
		return err
	case "element":
		return errors.New("elements apart from their set: want the output of nft -j list ruleset")
	}
	return nil
}

func decoded[T any](body json.RawMessage) (object T, err error) {
	err = json.Unmarshal(body, &object)
	return object, err
}
