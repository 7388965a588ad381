package release

import (
	"encoding/json"
	"runtime"
	"strings"
	"time"
)

// A statement is an in-toto statement with SLSA provenance (slsa.dev/provenance/v1).
type statement struct {
	Type          string     `json:"_type"`
	Subject       []subject  `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string            `json:"buildType"`
	ExternalParameters   map[string]string `json:"externalParameters"`
	InternalParameters   map[string]string `json:"internalParameters"`
	ResolvedDependencies []dependency      `json:"resolvedDependencies"`
}

type dependency struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

type runDetails struct {
	Builder  map[string]string `json:"builder"`
	Metadata map[string]string `json:"metadata"`
}

// addProvenance writes the SLSA provenance of the artifacts and the image. The start of the build is
// the time of the commit, so that the file is reproducible.
func (r *Release) addProvenance(imageDigest string) error {
	s := statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1",
		Subject: []subject{{
			r.imageRef(), map[string]string{"sha256": strings.TrimPrefix(imageDigest, "sha256:")},
		}},
		Predicate: provenance{
			BuildDefinition: buildDefinition{
				BuildType:          Home + "/blob/main/e2e/release/README.md",
				ExternalParameters: map[string]string{"version": r.Version, "hub": r.Hub},
				InternalParameters: map[string]string{"go": runtime.Version()},
				ResolvedDependencies: []dependency{{
					"git+" + Home + "@" + r.Commit, map[string]string{"gitCommit": r.Commit},
				}},
			},
			RunDetails: runDetails{
				Builder:  map[string]string{"id": Home + "/blob/main/Makefile#release"},
				Metadata: map[string]string{"startedOn": r.Time.UTC().Format(time.RFC3339)},
			},
		},
	}
	for _, a := range r.artifacts {
		s.Subject = append(s.Subject, subject{a.name, map[string]string{"sha256": a.sha256}})
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return r.add("provenance.intoto.json", append(text, '\n'))
}
