package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/sluice-mesh/sluice/e2e/mesh/path"
	"github.com/sluice-mesh/sluice/e2e/mesh/server"
)

// methods contains the methods of requests to which a header is added.
var methods = [][]byte{
	[]byte(http.MethodGet + " "), []byte(http.MethodHead + " "), []byte(http.MethodPost + " "),
}

// CopyWithHop copies one direction of a connection. If the data begins with an HTTP request,
// CopyWithHop adds the hop as the first header. It does not change later requests or other
// protocols. It looks for the request only in the result of the first read, so that it never waits
// for more data.
func CopyWithHop(to io.Writer, from io.Reader, hop path.Hop) error {
	first := make([]byte, 4096)
	n, err := from.Read(first)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	data, err := addHop(first[:n], hop)
	if err != nil {
		return err
	}
	if _, err := to.Write(data); err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return err
}

// addHop adds a hop as the first header of a request. It returns other data unchanged.
func addHop(data []byte, hop path.Hop) ([]byte, error) {
	line, rest, found := bytes.Cut(data, []byte("\r\n"))
	isRequest := slices.ContainsFunc(methods, func(m []byte) bool {
		return bytes.HasPrefix(line, m)
	})
	if !found || !isRequest {
		return data, nil
	}
	value, err := json.Marshal(hop)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s\r\n%s: %s\r\n%s", line, server.HopHeader, value, rest), nil
}
