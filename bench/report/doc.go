// Package report holds and prints the results of a benchmark: Result and Report, their ratios,
// medians and goals, as tables, JSON and SVG. It measures nothing.
package report
