package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/e2e/mesh/server"
)

// methods begin the requests that are signed.
var methods = [][]byte{[]byte(http.MethodGet + " "), []byte(http.MethodHead + " "), []byte(http.MethodPost + " ")}

// sendSigned copies a connection's one direction. If that begins as a request over HTTP, the hop is
// added as its first header; all else, and later requests of the connection, stay as they are. It
// never waits for more than the caller has sent.
func sendSigned(to io.Writer, from io.Reader, hop path.Hop) error {
	first := make([]byte, 4096)
	n, err := from.Read(first)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := sign(first[:n], hop)
	if err != nil {
		return err
	}
	if _, err := to.Write(text); err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return err
}

// sign adds a hop to the beginning of a request.
func sign(text []byte, hop path.Hop) ([]byte, error) {
	line := bytes.Index(text, []byte("\r\n"))
	if line < 0 {
		return text, nil
	}
	for _, m := range methods {
		if !bytes.HasPrefix(text, m) {
			continue
		}
		value, err := json.Marshal(hop)
		if err != nil {
			return nil, err
		}
		signed := append([]byte{}, text[:line+2]...)
		signed = append(signed, server.HopHeader+": "...)
		signed = append(signed, value...)
		return append(append(signed, "\r\n"...), text[line+2:]...), nil
	}
	return text, nil
}
