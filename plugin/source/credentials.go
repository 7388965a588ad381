package source

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// credentials are the credentials of a user of a kubeconfig. The zero value contains no
// credentials.
type credentials struct {
	token string
	// tokenFile is the path of a file with the token, or empty. It is read for each request,
	// because it may be replaced.
	tokenFile string
	// certificates contains the client certificate, if any.
	certificates []tls.Certificate
}

// newCredentials returns the credentials of the user. It reads the client certificate, but not yet
// the token file. Paths are relative to dir, the directory of the kubeconfig.
func newCredentials(user *authInfo, dir string) (credentials, error) {
	if err := user.checkSupported(); err != nil {
		return credentials{}, err
	}
	c := credentials{token: user.Token, tokenFile: inDir(dir, user.TokenFile)}
	certificate, err := dataOrFile(user.ClientCertificateData, dir, user.ClientCertificate)
	if err != nil {
		return credentials{}, fmt.Errorf("its user's client-certificate: %w", err)
	}
	key, err := dataOrFile(user.ClientKeyData, dir, user.ClientKey)
	if err != nil {
		return credentials{}, fmt.Errorf("its user's client-key: %w", err)
	}
	if len(certificate) == 0 && len(key) == 0 {
		return c, nil
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return credentials{}, fmt.Errorf("its user's client-certificate and client-key: %w", err)
	}
	c.certificates = []tls.Certificate{pair}
	return c, nil
}

// authorize adds the token, if there is one, to a request, and returns the token.
func (c *credentials) authorize(r *http.Request) (string, error) {
	token := c.token
	if c.tokenFile != "" {
		text, err := file.ReadAtMost(c.tokenFile, maxFileSize)
		text = bytes.TrimSpace(text)
		switch {
		case err == nil && len(text) > 0:
			token = string(text)
		case token != "":
			// As in client-go, the token of the kubeconfig is used if the file cannot be read or is
			// empty.
		case err != nil:
			return "", fmt.Errorf("its user's tokenFile: %w", err)
		default:
			return "", fmt.Errorf("its user's tokenFile %s is empty", c.tokenFile)
		}
	}
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", errors.New("its user's token contains a space, a control character or a" +
			" non-ASCII character")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return token, nil
}

// describe describes the refused credentials, and the time of their expiry if it is in the past.
// token is the result of authorize.
func (c *credentials) describe(token string) string {
	switch {
	case token != "":
		return "the token" + describeExpiry(ParseToken(token).Expiry)
	case len(c.certificates) > 0:
		return "the client certificate" + describeExpiry(c.certificates[0].Leaf.NotAfter)
	default:
		return "a user without credentials"
	}
}

// describeExpiry returns the text that describes an expiry in the past, or "".
func describeExpiry(at time.Time) string {
	if at.IsZero() || time.Now().Before(at) {
		return ""
	}
	return " (expired at " + at.UTC().Format(time.RFC3339) + ")"
}

// dataOrFile returns the embedded data, or the content of the file, or nothing if there is neither.
func dataOrFile(data []byte, dir, path string) ([]byte, error) {
	if len(data) > 0 || path == "" {
		return data, nil
	}
	return file.ReadAtMost(inDir(dir, path), maxFileSize)
}

// inDir resolves a path relative to the directory. An empty path stays empty.
func inDir(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(cmp.Or(dir, "."), path)
}
