//go:build race

package diff

// slowdown is about how much slower the program is with the race detector.
const slowdown = 5
