package source_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// secret must not appear in any error.
const secret = "hush-hush"

type fields = map[string]any

// write writes a file into a directory of a test, and returns its path.
func write(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeconfigCase is a change to a valid kubeconfig, with the expected result.
type kubeconfigCase struct {
	name string
	edit func(s *apiservertest.Server, cluster, user fields)
	kind source.Kind
	text string
}

// run makes a request with the changed kubeconfig, in JSON as the node agent writes it, and in
// YAML. Errors name the file, contain no secrets, and are returned immediately: a retry would have
// the same result.
func (c kubeconfigCase) run(t *testing.T) {
	server, _ := startInMemory(t)
	path := server.KubeconfigWith(func(cluster, user fields) { c.edit(server, cluster, user) })
	c.check(t, server, path)
	inJSON, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inYAML, err := yaml.JSONToYAML(inJSON)
	if err != nil || json.Valid(inYAML) {
		t.Fatalf("kubeconfig %s, error %v, want YAML that is not JSON", inYAML, err)
	}
	c.check(t, server, write(t, filepath.Dir(path), "kubeconfig.yaml", inYAML))
}

// check makes a request with the kubeconfig at the path.
func (c kubeconfigCase) check(t *testing.T, server *apiservertest.Server, path string) {
	t.Helper()
	got := requestPod(t.Context(), newSource(t, source.Options{Kubeconfig: path, Dial: server.Dial}), web)
	got.check(t, c.kind, c.text)
	if got.elapsed > 0 {
		t.Errorf("the request took %v, want no retry", got.elapsed)
	}
	if got.err == nil {
		return
	}
	checkText(t, got.err, "kubeconfig "+path)
	if strings.Contains(got.err.Error(), secret) {
		t.Errorf("the error contains a secret: %v", got.err)
	}
}

func TestFieldsOfTheKubeconfig(t *testing.T) {
	dir := t.TempDir()
	for _, row := range []kubeconfigCase{
		{"token and authority are embedded", func(
			*apiservertest.Server, fields, fields,
		) {
		}, "", ""},
		{"the authority is in a file", func(s *apiservertest.Server, cluster, _ fields) {
			delete(cluster, "certificate-authority-data")
			cluster["certificate-authority"] = write(t, dir, "ca.crt", s.CA())
		}, "", ""},
		{"embedded data take precedence over a file", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["certificate-authority"] = "/does/not/exist"
		}, "", ""},
		{"the file of the authority is missing", func(
			_ *apiservertest.Server, cluster, _ fields,
		) {
			delete(cluster, "certificate-authority-data")
			cluster["certificate-authority"] = "/does/not/exist"
		}, source.Misconfigured, "its cluster's certificate-authority: open /does/not/exist: no such file"},
		{"the authority is not a certificate", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["certificate-authority-data"] = []byte(secret)
		}, source.Misconfigured, "its cluster's certificate-authority contains no PEM certificate"},
		{"the authority is another one", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["certificate-authority-data"] = apiservertest.OtherCA()
		}, source.Misconfigured, "tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{"without an authority the system's authorities are used", func(
			_ *apiservertest.Server, cluster, _ fields,
		) {
			delete(cluster, "certificate-authority-data")
		}, source.Misconfigured, "tls: failed to verify certificate"},
		{"the server is not verified", func(_ *apiservertest.Server, cluster, _ fields) {
			delete(cluster, "certificate-authority-data")
			cluster["insecure-skip-tls-verify"] = true
		}, "", ""},
		{"an authority without verification is a contradiction", func(
			_ *apiservertest.Server, cluster, _ fields,
		) {
			cluster["insecure-skip-tls-verify"] = true
		}, source.Misconfigured, "remove one of them"},
		{"the server name is overridden", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["server"] = "https://10.96.0.1"
			cluster["tls-server-name"] = "localhost"
		}, "", ""},
		{"the server's certificate has another name", func(
			_ *apiservertest.Server, cluster, _ fields,
		) {
			cluster["server"] = "https://10.96.0.1"
		}, source.Misconfigured, "certificate is valid for 127.0.0.1, ::1, not 10.96.0.1"},
		{"plain HTTP is not supported", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["server"] = "http://10.96.0.1"
		}, source.Misconfigured, `its cluster's server "http://10.96.0.1" is not an https URL`},
		{"plain HTTP with a secret in the query", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["server"] = "http://10.96.0.1/?token=" + secret
		}, source.Misconfigured, `its cluster's server "http://10.96.0.1" is not an https URL`},
		{"a server without a host", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["server"] = "https:///api"
		}, source.Misconfigured, "is not an https URL"},
		{"a server that is not a URL", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["server"] = "https://me:" + secret + "@[::1"
		}, source.Misconfigured, "its cluster's server is not a URL"},
		{"a password in the URL", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["server"] = "https://me:" + secret + "@memory.test"
		}, source.Misconfigured, "its cluster's server has a user in its URL"},
		{"a proxy of an unknown kind", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["proxy-url"] = "ftp://me:" + secret + "@proxy.test"
		}, source.Misconfigured, "its cluster's proxy-url is not an http, https or socks5 URL"},
		{"a proxy without a host", func(_ *apiservertest.Server, cluster, _ fields) {
			cluster["proxy-url"] = "proxy.test"
		}, source.Misconfigured, "its cluster's proxy-url is not"},
		{"unknown fields", func(_ *apiservertest.Server, cluster, user fields) {
			cluster["extensions"], cluster["disable-compression"], user["comment"] = []any{}, true,
				"ours"
		}, "", ""},
		{"a field of another type", func(_ *apiservertest.Server, _, user fields) {
			user["token"] = fields{"value": secret}
		}, source.Misconfigured, "it is not a kubeconfig: the type of users.user.token is object"},
		{"data that are not base64", func(_ *apiservertest.Server, _, user fields) {
			user["client-key-data"] = secret
		}, source.Misconfigured, "it is not a kubeconfig: it is not YAML, or contains data that is not base64"},
	} {
		t.Run(row.name, func(t *testing.T) { synctest.Test(t, row.run) })
	}
}

func TestErrorsOfInvalidKubeconfigs(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"empty", "", "it has no current-context"},
		{"no current context", "contexts: [{name: a}]", "it has no current-context"},
		{
			"a missing context", "current-context: b\ncontexts: [{name: a}]",
			`its current-context "b" is not among its contexts`,
		},
		{
			"a missing cluster",
			"current-context: a\ncontexts: [{name: a, context: {cluster: c}}]",
			`it has no cluster "c"`,
		},
		{
			"a missing user",
			"current-context: a\nclusters: [{name: c}]\ncontexts: [{name: a, context: {cluster: c, user: u}}]",
			`it has no user "u"`,
		},
		{
			"invalid YAML", "users:\n- name: a\n  user: {token: [" + secret,
			"it is not a kubeconfig: line 3 is not YAML",
		},
		{"a missing anchor", "token: *" + secret, "it is not a kubeconfig: it is not YAML"},
		{"a number in place of a list", "users: 123", "it is not a kubeconfig: the type of users is number"},
		{"a list", "[]", "it is not a kubeconfig: the type of the file is array"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := write(t, t.TempDir(), "kubeconfig", []byte(row.text))
			got := requestPod(t.Context(), newSource(t, source.Options{Kubeconfig: path}), web)
			got.check(t, source.Misconfigured, "pod default/web: kubeconfig "+path+": "+row.want)
			if strings.Contains(got.err.Error(), secret) {
				t.Errorf("the error contains a secret: %v", got.err)
			}
			if err := source.NewAPIServer(
				source.Options{Kubeconfig: path}).Ready(t.Context()); !source.IsMisconfigured(err) {
				t.Errorf("Ready: error %v, want the kind misconfigured", err)
			}
		})
	}
}

func TestMissingKubeconfigIsMisconfigured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	requestPod(t.Context(), newSource(t, source.Options{Kubeconfig: path}),
		web).check(t, source.Misconfigured, "open "+path+": no such file or directory")
	requestPod(t.Context(), newSource(t, source.Options{}),
		web).check(t, source.Misconfigured, "no kubeconfig is configured")
}

// TestNonRegularAndHugeFilesAreRefused checks that a pipe, a device, a directory and a huge file
// are refused: reading them could block or not end.
func TestNonRegularAndHugeFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := write(t, dir, "huge", make([]byte, 1<<20+1))
	for path, want := range map[string]string{
		pipe: "is not a regular file", "/dev/zero": "is not a regular file",
		dir:  "is not a regular file",
		huge: "has more than 1048576 bytes",
	} {
		requestPod(t.Context(), newSource(t, source.Options{Kubeconfig: path}),
			web).check(t, source.Misconfigured, path+" "+want)
		synctest.Test(t, func(t *testing.T) {
			server, _ := startInMemory(t)
			kubeconfig := server.KubeconfigWith(func(_, user fields) {
				delete(user, "token")
				user["tokenFile"] = path
			})
			got := requestPod(t.Context(),
				newSource(t, source.Options{Kubeconfig: kubeconfig, Dial: server.Dial}), web)
			got.check(t, source.Misconfigured, "its user's tokenFile: "+path+" "+want)
		})
	}
}

func TestKubeconfigMayBeCreatedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := startInMemory(t)
		path := filepath.Join(t.TempDir(), "kubeconfig")
		api := newSource(t, source.Options{Kubeconfig: path, Dial: server.Dial})
		requestPod(t.Context(), api, web).check(t, source.Misconfigured, "no such file")
		server.WriteKubeconfig(path, func(_, _ fields) {})
		requestPod(t.Context(), api, web).check(t, "", "")
	})
}

func TestPathsAreRelativeToTheKubeconfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := startInMemory(t)
		dir := t.TempDir()
		certificate, key := server.ClientCertificate()
		for name, text := range map[string][]byte{
			"ca": server.CA(), "token": []byte(server.Token()), "crt": certificate, "key": key,
		} {
			write(t, dir, name, text)
		}
		path := filepath.Join(dir, "kubeconfig")
		server.WriteKubeconfig(path, func(cluster, user fields) {
			delete(cluster, "certificate-authority-data")
			delete(user, "token")
			cluster["certificate-authority"], user["tokenFile"] = "ca", "token"
			user["client-certificate"], user["client-key"] = "crt", "key"
		})
		requestPod(t.Context(), newSource(t, source.Options{Kubeconfig: path, Dial: server.Dial}),
			web).check(t, "", "")
	})
}

// TestNumbersAreTextsInJSONAsInYAML checks that a name may be a number in JSON, as in YAML.
func TestNumbersAreTextsInJSONAsInYAML(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := startInMemory(t)
		path := server.Kubeconfig()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		numbered := []byte(strings.ReplaceAll(string(text), `"local"`, "7"))
		if !json.Valid(numbered) || string(numbered) == string(text) {
			t.Fatalf("kubeconfig %s, want JSON with the number 7 as a name", numbered)
		}
		kubeconfigCase{}.check(t, server, write(t, filepath.Dir(path), "numbered", numbered))
	})
}
