package source_test

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// jwt returns a token with an expiry, like the token of a service account.
func jwt(expiry time.Time) string {
	claims := fmt.Sprintf(`{"exp":%d,"sub":"system:serviceaccount:sluice-system:sluice-cni"}`,
		expiry.Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + secret
}

func TestCredentialsOfTheKubeconfigAreUsedOrExplained(t *testing.T) {
	dir := t.TempDir()
	expired := jwt(time.Date(1999, 12, 31, 23, 0, 0, 0, time.UTC))
	for _, row := range []kubeconfigCase{
		{"a wrong token", func(_ *apiservertest.Server, _, user fields) {
			user["token"] = secret
		}, source.Unauthorized, "it answers 401: it does not accept the token of kubeconfig"},
		{"an expired token", func(_ *apiservertest.Server, _, user fields) {
			user["token"] = expired
		}, source.Unauthorized, "it does not accept the token (expired at 1999-12-31T23:00:00Z) of kubeconfig"},
		{"a rejected token that has not expired", func(_ *apiservertest.Server, _, user fields) {
			user["token"] = jwt(time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC))
		}, source.Unauthorized, "it does not accept the token of kubeconfig"},
		{"no credentials", func(_ *apiservertest.Server, _, user fields) {
			delete(user, "token")
		}, source.Unauthorized, "it does not accept a user without credentials of kubeconfig"},
		{"a token that does not fit into a header", func(_ *apiservertest.Server, _, user fields) {
			user["token"] = secret + "\r\nHost: x"
		}, source.Misconfigured, "its user's token contains a space, a control character or a non-ASCII character"},
		{"the token is in a file", func(s *apiservertest.Server, _, user fields) {
			delete(user, "token")
			user["tokenFile"] = write(t, dir, "token", []byte(s.Token()+"\n"))
		}, "", ""},
		{"the token of a file takes precedence", func(s *apiservertest.Server, _, user fields) {
			user["token"] = secret
			user["tokenFile"] = write(t, dir, "token", []byte(s.Token()))
		}, "", ""},
		{"the token is the fallback for a missing file", func(
			_ *apiservertest.Server, _, user fields,
		) {
			user["tokenFile"] = "/does/not/exist"
		}, "", ""},
		{"the file of the token is missing", func(_ *apiservertest.Server, _, user fields) {
			delete(user, "token")
			user["tokenFile"] = "/does/not/exist"
		}, source.Misconfigured, "its user's tokenFile: open /does/not/exist"},
		{"the file of the token has a name with many lines", func(
			_ *apiservertest.Server, _, user fields,
		) {
			delete(user, "token")
			user["tokenFile"] = "/\n" + strings.Repeat("/..", 500)
		}, source.Misconfigured, "its user's tokenFile: open /"},
		{"the file of the certificate has a name with many lines", func(_ *apiservertest.Server, _, user fields) {
			user["client-certificate"] = "/\n" + strings.Repeat("/x", 500)
		}, source.Misconfigured, "its user's client-certificate: open /"},
		{"the file of the token is empty", func(_ *apiservertest.Server, _, user fields) {
			delete(user, "token")
			user["tokenFile"] = write(t, dir, "empty", []byte("\n"))
		}, source.Misconfigured, "empty is empty"},
		{"a client certificate", func(s *apiservertest.Server, _, user fields) {
			delete(user, "token")
			user["client-certificate-data"], user["client-key-data"] = s.ClientCertificate()
		}, "", ""},
		{"a client certificate in files", func(s *apiservertest.Server, _, user fields) {
			delete(user, "token")
			certificate, key := s.ClientCertificate()
			user["client-certificate"] = write(t, dir, "client.crt", certificate)
			user["client-key"] = write(t, dir, "client.key", key)
		}, "", ""},
		{"an expired client certificate", func(s *apiservertest.Server, _, user fields) {
			delete(user, "token")
			user["client-certificate-data"], user["client-key-data"] = s.ExpiredCertificate()
		}, source.Unauthorized, "it does not accept the client certificate (expired at 1999-12-31T00:00:00Z) of kubeconfig"},
		{"a client certificate without its key", func(s *apiservertest.Server, _, user fields) {
			user["client-certificate-data"], _ = s.ClientCertificate()
		}, source.Misconfigured, "its user's client-certificate and client-key: tls: failed to find any PEM data in key input"},
		{"a missing client certificate", func(_ *apiservertest.Server, _, user fields) {
			user["client-certificate"] = "/does/not/exist"
		}, source.Misconfigured, "its user's client-certificate: open /does/not/exist"},
		{"a missing client key", func(s *apiservertest.Server, _, user fields) {
			user["client-certificate-data"], _ = s.ClientCertificate()
			user["client-key"] = "/does/not/exist"
		}, source.Misconfigured, "its user's client-key: open /does/not/exist"},
		{"an exec plugin", func(_ *apiservertest.Server, _, user fields) {
			user["exec"] = fields{
				"apiVersion": "client.authentication.k8s.io/v1", "command": "aws",
				"env": []any{secret},
			}
		}, source.Misconfigured, "its user has an exec plugin, which the plugin does not execute: give it a token"},
		{"an empty exec plugin", func(_ *apiservertest.Server, _, user fields) {
			user["exec"], user["auth-provider"] = nil, nil
		}, "", ""},
		{"an auth-provider", func(_ *apiservertest.Server, _, user fields) {
			user["auth-provider"] = fields{"name": "gcp"}
		}, source.Misconfigured, "its user has an auth-provider"},
		{"a password", func(_ *apiservertest.Server, _, user fields) {
			user["username"], user["password"] = "me", secret
		}, source.Misconfigured, "its user has a password"},
		{
			"impersonation of another user",
			func(_ *apiservertest.Server, _, user fields) {
				user["as"] = "admin"
			}, source.Misconfigured, "its user impersonates another user",
		},
		{
			"impersonation of another UID",
			func(_ *apiservertest.Server, _, user fields) {
				user["as-uid"] = "1"
			}, source.Misconfigured, "its user impersonates another user",
		},
		{"impersonation of a group", func(_ *apiservertest.Server, _, user fields) {
			user["as-groups"] = []any{"system:masters"}
		}, source.Misconfigured, "its user impersonates another user"},
	} {
		t.Run(row.name, func(t *testing.T) { synctest.Test(t, row.run) })
	}
}

func TestRenewedCredentialsAreUsed(t *testing.T) {
	t.Run("a token file is read for each request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server, _ := startInMemory(t)
			dir := t.TempDir()
			write(t, dir, "token", []byte(server.Token()))
			path := filepath.Join(dir, "kubeconfig")
			server.WriteKubeconfig(path, func(_, user fields) {
				delete(user, "token")
				user["tokenFile"] = "token"
			})
			api := newSource(t, source.Options{Kubeconfig: path, Dial: server.Dial})
			requestPod(t.Context(), api, web).check(t, "", "")
			server.SetToken("another.one")
			write(t, dir, "token", []byte("another.one"))
			requestPod(t.Context(), api, web).check(t, "", "")
		})
	})
	t.Run("a kubeconfig is read again after 401", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server, _ := startInMemory(t)
			path := server.Kubeconfig()
			api := newSource(t, source.Options{Kubeconfig: path, Dial: server.Dial})
			server.SetToken("another.one")
			requestPod(t.Context(), api, web).check(t, source.Unauthorized, "401")
			server.WriteKubeconfig(path, func(_, _ fields) {})
			requestPod(t.Context(), api, web).check(t, "", "")
		})
	})
}
