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
)

// DefaultMirror is Debian's own.
const DefaultMirror = "https://deb.debian.org"

// A Mirror is where packages come from, and a folder that keeps them.
type Mirror struct {
	// URL is the mirror's; a mirror without https is trusted with lists of packages, never with
	// packages that have a known checksum.
	URL string
	// Dir keeps what was fetched; it is created.
	Dir string
}

// ErrNotFound reports that the mirror does not have a file, or no longer has it.
var ErrNotFound = errors.New("not found on the mirror")

// Fetch returns the package's file, of which the checksum is right. What the folder has is not
// fetched again. ErrNotFound is wrapped by the error when the mirror does not have it.
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
	if err := keep(file, p.SHA256, body); err != nil {
		return "", fmt.Errorf("package %s: %w", p, err)
	}
	return file, nil
}

// keep writes the content next to the file and renames it when its checksum is right.
func keep(file, want string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".part-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }()
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(part, hash), content)
	if err := errors.Join(err, part.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		return fmt.Errorf("the mirror's file has the checksum %s, want %s", got, want)
	}
	return os.Rename(part.Name(), file)
}

// Index lists the packages of a source whose names are as one of the patterns says.
func (m Mirror) Index(ctx context.Context, s Source, patterns ...string) ([]Package, error) {
	body, err := m.get(ctx, fmt.Sprintf("%s/dists/%s/main/binary-%s/Packages.xz", s.Archive, s.Suite, s.Arch))
	if err != nil {
		return nil, fmt.Errorf("packages of %s/%s, %s: %w", s.Archive, s.Suite, s.Arch, err)
	}
	defer func() { _ = body.Close() }()
	text, err := xz.NewReader(bufio.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("packages of %s/%s, %s: %w", s.Archive, s.Suite, s.Arch, err)
	}
	list, err := parseIndex(text, s, patterns)
	if err != nil {
		return nil, fmt.Errorf("packages of %s/%s, %s: %w", s.Archive, s.Suite, s.Arch, err)
	}
	return list, nil
}

// parseIndex reads paragraphs of fields.
func parseIndex(r io.Reader, s Source, patterns []string) ([]Package, error) {
	const longestLine = 1 << 20
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	var list []Package
	p := Package{Source: s}
	end := func() {
		if slices.ContainsFunc(patterns, p.Match) {
			list = append(list, p)
		}
		p = Package{Source: s}
	}
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "":
			end()
		case "Package":
			p.Name = value
		case "Version":
			p.Version = value
		case "Filename":
			p.Path = value
		case "SHA256":
			p.SHA256 = value
		}
	}
	end()
	return list, lines.Err()
}

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
