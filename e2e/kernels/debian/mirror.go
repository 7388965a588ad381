package debian

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"
	"pault.ag/go/debian/control"
)

// DefaultMirror is the URL of Debian's own mirror.
const DefaultMirror = "https://deb.debian.org"

// A Mirror is a mirror of Debian with a cache directory for packages.
type Mirror struct {
	// URL is the URL of the mirror. The mirror is trusted for lists of packages, even without
	// https. Downloaded packages are verified by their checksums.
	URL string
	// Dir is the cache. It is created if it does not exist.
	Dir string
}

// ErrNotFound is wrapped by the error for a file that the mirror does not have, or no longer has.
var ErrNotFound = errors.New("not found on the mirror")

// Fetch downloads a package unless it is cached, verifies its checksum, and returns its path. The
// error wraps ErrNotFound if the mirror does not have the file.
func (m Mirror) Fetch(ctx context.Context, p Package) (string, error) {
	file := filepath.Join(m.Dir, path.Base(p.Path))
	if sum, err := checksum(file); err == nil && sum == p.SHA256 {
		return file, nil
	}
	body, err := m.get(ctx, p.Archive+"/"+p.Path)
	if err != nil {
		return "", fmt.Errorf("package %s: %w", p, err)
	}
	defer func() { _ = body.Close() }()
	if err := writeVerified(file, p.SHA256, body); err != nil {
		return "", fmt.Errorf("package %s: %w", p, err)
	}
	return file, nil
}

// writeVerified writes the content to a temporary file, and renames the temporary file to file if
// the content has the checksum wantSHA256.
func writeVerified(file, wantSHA256 string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".part-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(temporary, hash), content)
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != wantSHA256 {
		return fmt.Errorf("checksum of the mirror's file is %s, want %s", got, wantSHA256)
	}
	return os.Rename(temporary.Name(), file)
}

// Index lists the packages of a source whose names match one of the patterns.
func (m Mirror) Index(
	ctx context.Context, s Source, patterns ...string,
) (packages []Package, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("packages of %s/%s, %s: %w", s.Archive, s.Suite, s.Arch, err)
		}
	}()
	body, err := m.get(ctx,
		fmt.Sprintf("%s/dists/%s/main/binary-%s/Packages.xz", s.Archive, s.Suite, s.Arch))
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	uncompressed, err := xz.NewReader(bufio.NewReader(body))
	if err != nil {
		return nil, err
	}
	var all []struct{ Package, Version, Filename, SHA256 string }
	if err := control.Unmarshal(&all, uncompressed); err != nil {
		return nil, err
	}
	for _, found := range all {
		p := Package{s, found.Package, found.Version, found.Filename, found.SHA256}
		if slices.ContainsFunc(patterns, p.Match) {
			packages = append(packages, p)
		}
	}
	return packages, nil
}

// get requests a file of the mirror. The caller must close the body.
func (m Mirror) get(ctx context.Context, file string) (io.ReadCloser, error) {
	url := strings.TrimSuffix(m.URL, "/") + "/" + file
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	_ = response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%s: %w", url, ErrNotFound)
	}
	return nil, fmt.Errorf("%s: %s", url, response.Status)
}

// checksum returns the SHA-256 of a file in hexadecimal.
func checksum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
