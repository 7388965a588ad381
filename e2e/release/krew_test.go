package release

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// An index is a local replacement for krew's default index, with a server for the archives in its
// manifest.
type index struct {
	t    *testing.T
	r    *Release
	krew string // path of the program krew
	dir  string // directory of the repository
	home string // URL of the server, which replaces Home in the manifest
}

// newIndex builds krew and publishes the manifest of the release, with the URL of the local server.
func newIndex(t *testing.T, r *Release) *index {
	t.Helper()
	server := httptest.NewServer(http.StripPrefix("/releases/download/"+r.Version,
		http.FileServer(http.Dir(r.Out))))
	t.Cleanup(server.Close)
	x := &index{
		t: t, r: r, krew: filepath.Join(t.TempDir(), "krew"), dir: t.TempDir(), home: server.URL,
	}
	command(t, "krew", "go", "build", "-o", x.krew, "sigs.k8s.io/krew/cmd/krew")
	root := t.TempDir()
	t.Setenv("KREW_ROOT", root)
	t.Setenv("KREW_DEFAULT_INDEX_URI", x.dir)
	t.Setenv("PATH", filepath.Join(root, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for name, value := range map[string]string{
		"GIT_AUTHOR_NAME": "index", "GIT_AUTHOR_EMAIL": "index@example.org",
		"GIT_COMMITTER_NAME": "index", "GIT_COMMITTER_EMAIL": "index@example.org",
	} {
		t.Setenv(name, value)
	}
	command(t, x.dir, "git", "init", "--quiet", "--initial-branch=main")
	x.publish(string(r.read(t, "sluice.yaml")))
	return x
}

// publish commits a manifest.
func (x *index) publish(manifest string) {
	x.t.Helper()
	manifest = strings.ReplaceAll(manifest, Home+"/releases", x.home+"/releases")
	if err := os.MkdirAll(filepath.Join(x.dir, "plugins"), 0o755); err != nil {
		x.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(x.dir, "plugins/sluice.yaml"), []byte(manifest),
		0o644); err != nil {
		x.t.Fatal(err)
	}
	command(x.t, x.dir, "git", "add", ".")
	command(x.t, x.dir, "git", "commit", "--quiet", "--message=sluice")
}

// checkInstallation installs, lists, runs and uninstalls the plugin with krew.
func (x *index) checkInstallation() {
	x.t.Helper()
	command(x.t, ".", x.krew, "update")
	if found := command(x.t, ".", x.krew, "search", "sluice"); !strings.Contains(found,
		"Trace, explain and check mesh redirection") {
		x.t.Errorf("krew search: %s, want the description of the plugin", found)
	}
	command(x.t, ".", x.krew, "install", "sluice")
	if list := command(x.t, ".", x.krew, "list"); !strings.Contains(list, "sluice") {
		x.t.Errorf("krew list: %s, want the plugin sluice", list)
	}
	// kubectl finds a plugin in PATH by this name.
	if text := command(x.t, ".", "kubectl-sluice", "--version"); !strings.Contains(text,
		x.r.Version) {
		x.t.Errorf("kubectl-sluice --version: %s, want %s", text, x.r.Version)
	}
	command(x.t, ".", x.krew, "uninstall", "sluice")
	if path, err := exec.LookPath("kubectl-sluice"); err == nil {
		x.t.Errorf("%s exists after krew uninstall", path)
	}
}

func TestKrewInstallsThePlugin(t *testing.T) {
	r := newRelease(t)
	program := filepath.Join(t.TempDir(), Client)
	command(t, r.Source, "go", "build", "-ldflags", "-X main.version="+r.Version, "-o", program,
		sourceDirs[Client])
	built, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range Architectures {
		var content []byte
		if arch == runtime.GOARCH {
			content = built
		}
		if err := r.addArchive(r.archiveName(Client, arch),
			[]file{{"LICENSE", 0o644, nil}, {Client, 0o755, content}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.addKrew(); err != nil {
		t.Fatal(err)
	}
	x := newIndex(t, r)
	x.checkInstallation()

	manifest := string(r.read(t, "sluice.yaml"))
	sum, err := r.checksum(r.archiveName(Client, runtime.GOARCH))
	if err != nil {
		t.Fatal(err)
	}
	x.publish(strings.ReplaceAll(manifest, sum, strings.Repeat("f", len(sum))))
	command(t, ".", x.krew, "update")
	out, err := exec.CommandContext(t.Context(), x.krew, "install", "sluice").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "checksum does not match") {
		t.Errorf("archive with a wrong checksum: error %v, want a checksum error in\n%s", err, out)
	}
}
