package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// issueTimeout is the time limit of a request for a token.
const issueTimeout = 10 * time.Second

// maxMessageBytes limits the length of the API server's message in errors.
const maxMessageBytes = 300

// errNotPermitted is wrapped by the error of requestToken if the API server forbids or does not
// support the request, or the agent's token names no service account.
var errNotPermitted = errors.New("requesting a token is not permitted")

// requestToken requests a token for the service account of the given token. The new token is not
// bound to a pod, because the plugin needs it when the agent's pod does not exist.
func (o *Options) requestToken(ctx context.Context, token string) (string, error) {
	namespace, name := serviceAccount(source.ParseToken(token).Subject)
	if name == "" {
		return "", fmt.Errorf("%w: the agent's token does not belong to a service account",
			errNotPermitted)
	}
	client, err := apiclient.New(o.Options)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/serviceaccounts/" +
		url.PathEscape(name) + "/token"
	response, err := client.Do(ctx, http.MethodPost, path, map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": map[string]any{"expirationSeconds": int64(o.Lifetime.Seconds())},
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	return readTokenResponse(response)
}

// serviceAccount returns the namespace and the name of a service account from the subject of its
// token, or empty strings if the subject is not a service account.
func serviceAccount(subject string) (namespace, name string) {
	account, isAccount := strings.CutPrefix(subject, "system:serviceaccount:")
	namespace, name, hasName := strings.Cut(account, ":")
	if !isAccount || !hasName || namespace == "" || name == "" ||
		strings.ContainsAny(account, "/?#%") {
		return "", ""
	}
	return namespace, name
}

// readTokenResponse reads the response to a request for a token.
func readTokenResponse(response *http.Response) (string, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("read the API server's answer: %w", err)
	}
	var issued struct {
		Message string
		Status  json.RawMessage
	}
	// A response that is not JSON contains no token.
	_ = json.Unmarshal(body, &issued)
	var status struct{ Token string }
	switch code := response.StatusCode; {
	case code == http.StatusForbidden, code == http.StatusNotFound,
		code == http.StatusMethodNotAllowed:
		return "", fmt.Errorf("%w: the API server answers %d: %s", errNotPermitted, code,
			text.Quote(issued.Message, maxMessageBytes))
	case code == http.StatusUnauthorized:
		return "", source.WithKind(source.Unauthorized,
			errors.New("the API server answers 401: it does not accept the projected token"))
	case code != http.StatusCreated && code != http.StatusOK:
		return "", fmt.Errorf("the API server answers %d: %s", code,
			text.Quote(issued.Message, maxMessageBytes))
	}
	if json.Unmarshal(issued.Status, &status) != nil || !isWellFormed(status.Token) {
		return "", errors.New("the API server's answer contains no valid token")
	}
	return status.Token, nil
}

// isWellFormed reports whether a token contains only characters that are allowed in a header.
func isWellFormed(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(c rune) bool {
		return c <= ' ' || c > '~'
	})
}
