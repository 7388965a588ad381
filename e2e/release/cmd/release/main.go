// Command release builds a release of Sluice from a clean checkout into a directory:
//
//	release -version v0.2.0 -source ../.. -o dist
//
// With -push, it also pushes the image and the chart to the registry of -hub, with the credentials
// of docker login. It signs the checksums, the image and the chart if $COSIGN_PRIVATE_KEY contains
// a PEM private key, or if $COSIGN_KEY contains the path of a private key. $COSIGN_PASSWORD is the
// password of the key.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/e2e/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r := release.Release{}
	flag.StringVar(&r.Version, "version", "", "version, such as v0.2.0")
	flag.StringVar(&r.Source, "source", ".", "directory of the checkout")
	flag.StringVar(&r.Out, "o", "dist", "directory to write to")
	flag.StringVar(&r.Hub, "hub", "ghcr.io/sluice-mesh",
		"registry and path of the image and the chart")
	push := flag.Bool("push", false,
		"push the image, the chart and their signatures to the registry")
	flag.Parse()
	var err error
	if r.Commit, r.Time, err = head(ctx, r.Source); err != nil {
		return err
	}
	if r.Key, err = keyFromEnvironment(); err != nil {
		return err
	}
	begin := time.Now()
	r.Progress = func(step string) {
		fmt.Printf("%6.1f s  %s\n", time.Since(begin).Seconds(), step)
	}
	if err := r.Build(ctx); err != nil {
		return err
	}
	if *push {
		if err := r.Push(ctx); err != nil {
			return err
		}
	}
	r.Progress("done: " + r.Out)
	if r.Key == nil {
		fmt.Println("not signed: set COSIGN_KEY or COSIGN_PRIVATE_KEY to sign")
	}
	return nil
}

// head returns the hash and the time of the checked-out commit. It returns an error if the checkout
// is not clean.
func head(ctx context.Context, dir string) (string, time.Time, error) {
	changes, err := git(ctx, dir, "status", "--porcelain")
	if err != nil {
		return "", time.Time{}, err
	}
	if changes != "" {
		return "", time.Time{}, fmt.Errorf(
			"the checkout %s is not clean:\n%s", dir, changes)
	}
	text, err := git(ctx, dir, "show", "--no-patch", "--format=%H %ct", "HEAD")
	if err != nil {
		return "", time.Time{}, err
	}
	commit, seconds, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("parse the time of the commit: %w", err)
	}
	return commit, time.Unix(n, 0).UTC(), nil
}

// git runs git in a checkout and returns its output.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// keyFromEnvironment returns the private key that environment variables specify, or nil if they
// specify no key.
func keyFromEnvironment() (*ecdsa.PrivateKey, error) {
	pem, path := []byte(os.Getenv("COSIGN_PRIVATE_KEY")), os.Getenv("COSIGN_KEY")
	switch {
	case len(pem) > 0 && path != "":
		return nil, errors.New("COSIGN_KEY and COSIGN_PRIVATE_KEY: set only one of them")
	case path != "":
		var err error
		if pem, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("COSIGN_KEY: %w", err)
		}
	case len(pem) == 0:
		return nil, nil
	}
	return release.ParseKey(pem, []byte(os.Getenv("COSIGN_PASSWORD")))
}
