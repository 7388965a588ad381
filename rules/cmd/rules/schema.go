package main

import _ "embed"

// jsonSchema describes every object that --output json prints. TestSchema generates it with the
// flag -update.
//
//go:embed schema.json
var jsonSchema string
