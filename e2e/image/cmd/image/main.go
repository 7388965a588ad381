// Command image packs directories of programs, one for each architecture, into a container image,
// and prints its digest and sizes:
//
//	image -ref ghcr.io/sluice-mesh/sluice:v1 -o image.tar amd64=DIR arm64=DIR
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-mesh/sluice/e2e/image"
)

func main() {
	ref := flag.String("ref", "", "`name` of the image, with a tag")
	out := flag.String("o", "image.tar", "`file` to write")
	flag.Parse()
	if err := run(*ref, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ref, out string, args []string) error {
	spec := image.Sluice(ref)
	for _, arg := range args {
		architecture, dir, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("argument %q: want ARCHITECTURE=DIRECTORY", arg)
		}
		spec.Platforms = append(spec.Platforms, image.Platform{
			Architecture: architecture, Root: os.DirFS(dir),
		})
	}
	report, err := write(out, spec)
	if err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	fmt.Printf("%s@%s\n", ref, report.Digest)
	for _, v := range report.Variants {
		fmt.Printf("  %-6s %s %6.1f MB to pull, %6.1f MB unpacked\n",
			v.Architecture, v.Digest, float64(v.Compressed)/1e6, float64(v.Unpacked)/1e6)
	}
	return nil
}

// write writes the archive. After an error, it removes the incomplete file.
func write(out string, spec image.Spec) (image.Report, error) {
	f, err := os.Create(out)
	if err != nil {
		return image.Report{}, err
	}
	report, err := image.Write(f, spec)
	if err := errors.Join(err, f.Close()); err != nil {
		return image.Report{}, errors.Join(err, os.Remove(out))
	}
	return report, nil
}
