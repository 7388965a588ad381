package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ResultsFile is the name of the file with the results. All other files are rendered from it.
const ResultsFile = "results.json"

// Read returns the results in a directory.
func Read(dir string) (Results, error) {
	text, err := os.ReadFile(filepath.Join(dir, ResultsFile))
	if err != nil {
		return Results{}, err
	}
	return Decode(text)
}

// Files returns the rendered files by name: the page and its plots.
func Files(r Results) (map[string][]byte, error) {
	files := map[string][]byte{"RESULTS.md": Markdown(r)}
	for _, p := range Plots(r) {
		files[p.Name] = p.SVG
	}
	if r.Soak != nil {
		svg, err := plotSoak(r.Soak)
		if err != nil {
			return nil, fmt.Errorf("soak.svg: %w", err)
		}
		files["soak.svg"] = svg
	}
	if r.Scale != nil {
		svg, err := plotScale(r.Scale)
		if err != nil {
			return nil, fmt.Errorf("scale.svg: %w", err)
		}
		files["scale.svg"] = svg
	}
	return files, nil
}

// Write writes the results and the rendered files to a directory, and removes plots of topics that
// no longer exist.
func Write(dir string, r Results) error {
	text, err := r.Encode()
	if err != nil {
		return err
	}
	files, err := Files(r)
	if err != nil {
		return err
	}
	files[ResultsFile] = text
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range old {
		if files[filepath.Base(path)] == nil {
			errs = append(errs, os.Remove(path))
		}
	}
	for name, content := range files {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return errors.Join(errs...)
}
