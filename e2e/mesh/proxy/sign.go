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

// methods contains the methods of requests to which a header is added.
var methods = [][]byte{
	[]byte(http.MethodGet + " "), []byte(http.MethodHead + " "), []byte(http.MethodPost + " "),
}

// SendSigned copies one direction of a connection. If the data begins with an HTTP request, it adds
// the hop as the first header. It does not change later requests or other protocols. It never waits
// for more data than the caller has sent.
func SendSigned(to io.Writer, from io.Reader, hop path.Hop) error {
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

// sign adds a hop as the first header of a request.
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
