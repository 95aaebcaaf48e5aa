package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sizes of the drawing, in pixels.
const (
	svgWidth   = 1080
	svgHead    = 64
	svgRow     = 300
	svgFoot    = 24
	plotTop    = 56
	plotHeight = 190
	plotWidth  = 420
)

// Colours of the systems, in turn, distinguishable with colour blindness; limits are grey and
// dashed.
var (
	svgColours = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}
	svgDashes  = map[string]string{GRPCEcho: "6 4", GRPCStream: "6 4", GRPCSnapshot: "6 4", Fsync: "2 3"}
)

// WriteSVG draws the report: for each workload the latency by percentile, next to its limits, and
// the events a second over time.
func (r *Report) WriteSVG(w io.Writer) error {
	results := r.Medians()
	colours := make(map[string]string)
	var workloads []Workload
	for i := range results {
		if results[i].Limit {
			continue
		}
		if s := results[i].System; colours[s] == "" {
			colours[s] = svgColours[len(colours)%len(svgColours)]
		}
		if !slices.Contains(workloads, results[i].Workload) {
			workloads = append(workloads, results[i].Workload)
		}
	}
	var d drawing
	height := svgHead + max(len(workloads), 1)*svgRow + svgFoot
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">`, svgWidth, height)
	d.printf(`<rect width="%d" height="%d" fill="white"/>`, svgWidth, height)
	d.text(24, 28, "start", "font-size=\"16\" font-weight=\"bold\"", "runlog-bench")
	m := &r.Machine
	d.text(24, 48, "start", `fill="#555"`, fmt.Sprintf("%s, %d cores, %s, %s, %s; %s", m.CPU, m.Cores, m.Platform, m.FileSystem, m.Go, r.Settings.measuredFor()))
	for i, wl := range workloads {
		d.workload(svgHead+i*svgRow, wl, results, colours)
	}
	if len(workloads) == 0 {
		d.workload(svgHead, Workload{Name: "limits"}, results, colours)
	}
	d.printf("</svg>\n")
	_, err := w.Write(d.Bytes())
	return err
}

// drawing gathers the elements of an SVG.
type drawing struct{ bytes.Buffer }

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.Buffer, format+"\n", args...) }

func (d *drawing) text(x, y float64, anchor, style, text string) {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text))
	d.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`, x, y, anchor, style, escaped.String())
}

// curve is a line of a plot.
type curve struct {
	name, colour, dash string
	points             [][2]float64
}

// axis maps values to 0..1.
type axis struct {
	title string
	ticks []tick
	at    func(value float64) float64
}

type tick struct {
	value float64
	label string
}

// workload draws a row: the two plots of a workload on all systems, with the limits that it is
// compared with.
func (d *drawing) workload(top int, wl Workload, results []Result, colours map[string]string) {
	var byShare, overTime []curve
	for i := range results {
		r := &results[i]
		c := curve{name: r.System, colour: colours[r.System]}
		switch {
		case r.Limit && (wl.Name == "limits" || r.Workload == wl.Echo() || r.Name == Fsync):
			c.name, c.colour, c.dash = r.Name, "#888", svgDashes[r.Name]
		case r.Limit || r.Workload != wl:
			continue
		}
		for _, p := range r.Percentiles {
			if p.Ms > 0 {
				c.points = append(c.points, [2]float64{nines(p.Share), p.Ms})
			}
		}
		byShare = append(byShare, c)
		if r.Limit {
			continue
		}
		c.points = nil
		for n, events := range r.Timeline.Events {
			if float64(n+1)*r.Timeline.IntervalMs > r.Seconds*1e3 {
				break // an incomplete interval would look like a slump
			}
			c.points = append(c.points, [2]float64{float64(n) * r.Timeline.IntervalMs / 1e3, float64(events) * 1e3 / r.Timeline.IntervalMs})
		}
		overTime = append(overTime, c)
	}
	d.text(24, float64(top)+20, "start", `font-size="13" font-weight="bold"`, wl.Label())
	d.plot(80, top+plotTop, shareAxis(byShare), logAxis(byShare), byShare)
	d.plot(620, top+plotTop, timeAxis(overTime), countAxis(overTime), overTime)
}

// plot draws axes, grid, curves and a legend above.
func (d *drawing) plot(left, top int, x, y axis, curves []curve) {
	px := func(v float64) float64 { return float64(left) + plotWidth*x.at(v) }
	py := func(v float64) float64 { return float64(top) + plotHeight*(1-y.at(v)) }
	d.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#ccc"/>`, left, top, plotWidth, plotHeight)
	for _, t := range x.ticks {
		d.printf(`<path d="M%.1f %d v%d" stroke="#eee"/>`, px(t.value), top, plotHeight)
		d.text(px(t.value), float64(top+plotHeight)+14, "middle", `fill="#555"`, t.label)
	}
	for _, t := range y.ticks {
		d.printf(`<path d="M%d %.1f h%d" stroke="#eee"/>`, left, py(t.value), plotWidth)
		d.text(float64(left)-6, py(t.value)+4, "end", `fill="#555"`, t.label)
	}
	d.text(float64(left)+plotWidth/2, float64(top+plotHeight)+30, "middle", `fill="#555"`, x.title)
	d.text(float64(left)-56, float64(top)-10, "start", `fill="#555"`, y.title)
	legend := float64(left) + 40
	for _, c := range curves {
		var path strings.Builder
		verb := "M"
		for _, p := range c.points {
			fmt.Fprintf(&path, "%s%.1f %.1f", verb, px(p[0]), py(p[1]))
			verb = "L"
		}
		if len(c.points) > 0 {
			d.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="%s"/>`, path.String(), c.colour, c.dash)
		}
		d.printf(`<path d="M%.1f %d h18" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, legend, top-14, c.colour, c.dash)
		d.text(legend+22, float64(top)-10, "start", `fill="#333"`, c.name)
		legend += 40 + 7*float64(len(c.name))
	}
}

// nines maps a share to an axis on which every further nine has the same width: 90 % at 1, 99 % at
// 2.
func nines(share float64) float64 { return -math.Log10(max(1-share, 1e-9)) }

// extent is the largest of all curves in one direction, and the smallest.
func extent(curves []curve, direction int) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		for _, p := range c.points {
			low, high = min(low, p[direction]), max(high, p[direction])
		}
	}
	if low > high {
		return 1, 1
	}
	return low, high
}

func shareAxis(curves []curve) axis {
	_, high := extent(curves, 0)
	high = max(math.Ceil(high), 2)
	a := axis{title: "share of the calls", at: func(v float64) float64 { return v / high }, ticks: []tick{{0, "0"}, {nines(0.5), "50 %"}}}
	for n := 1; n <= int(high); n++ {
		a.ticks = append(a.ticks, tick{float64(n), strconv.FormatFloat(100-math.Pow10(2-n), 'f', max(0, n-2), 64) + " %"})
	}
	return a
}

func logAxis(curves []curve) axis {
	low, high := extent(curves, 1)
	from, to := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	to = max(to, from+1)
	a := axis{title: "ms", at: func(v float64) float64 { return (math.Log10(v) - from) / (to - from) }}
	for n := from; n <= to; n++ {
		a.ticks = append(a.ticks, tick{math.Pow(10, n), strconv.FormatFloat(math.Pow(10, n), 'g', -1, 64)})
	}
	return a
}

func timeAxis(curves []curve) axis { return linearAxis("seconds", curves, 0) }

func countAxis(curves []curve) axis { return linearAxis("events a second", curves, 1) }

// linearAxis begins at 0 and has four to ten ticks at round numbers.
func linearAxis(title string, curves []curve, direction int) axis {
	_, high := extent(curves, direction)
	high = max(high, 1e-3)
	step := math.Pow(10, math.Floor(math.Log10(high)))
	for high/step < 4 {
		step /= 2
	}
	top := math.Ceil(high/step) * step
	a := axis{title: title, at: func(v float64) float64 { return v / top }}
	for n := 0; float64(n)*step <= top*1.0001; n++ {
		v := float64(n) * step
		label := strconv.FormatFloat(v, 'g', 4, 64)
		if v >= 1000 {
			label = Grouped(v)
		}
		a.ticks = append(a.ticks, tick{v, label})
	}
	return a
}
