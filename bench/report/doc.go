// Package report holds what a benchmark has measured, and prints it: Result and Report, their
// ratios, medians and goals, as tables, JSON and SVG. It measures nothing itself.
package report
