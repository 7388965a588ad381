//go:build !race

package diff

// slowdown is 1: see race_on.go.
const slowdown = 1
