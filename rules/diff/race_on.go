//go:build race

package diff

// slowdown is the approximate factor by which the race detector slows the program down.
const slowdown = 5
