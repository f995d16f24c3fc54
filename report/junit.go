package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// JUnit XML has no one definition. This is the part that the Ant schema (strict
// order, required attributes) and the Jenkins schema both accept.
type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Package    string          `xml:"package,attr"`
	ID         int             `xml:"id,attr"`
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Hostname   string          `xml:"hostname,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Time       string          `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
	Out        string          `xml:"system-out"`
	Err        string          `xml:"system-err"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
	Error   *junitFailure `xml:"error"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

func renderJUnit(w io.Writer, runs []*Summary, _ *Options) error {
	var doc junitSuites
	for i, s := range runs {
		doc.Suites = append(doc.Suites, suiteOf(s, i, len(runs)))
	}
	return writeXML(w, doc)
}

func suiteOf(s *Summary, id, of int) junitSuite {
	suite := junitSuite{
		Name: xmlLine(title(s, of)), Package: "nightshift", ID: id, Hostname: "nightshift",
		Timestamp: strings.TrimSuffix(stamp(s.StartedAt), "Z"), Time: seconds(millis(s.DurationMS)),
		Out: xmlText(s.FinalMessage),
	}
	for _, kv := range [][2]string{
		{"version", s.Run.Version}, {"thread", s.Run.ThreadID}, {"model", s.Run.Model}, {"sandbox", s.Run.Sandbox}, {"network", s.Run.Network},
		{"policy", s.Policy.Digest}, {"outcome", s.Outcome}, {"class", s.Class}, {"exit_code", fmt.Sprint(s.ExitCode)},
		{"input_tokens", fmt.Sprint(s.Usage.Input)}, {"output_tokens", fmt.Sprint(s.Usage.Output)},
		{"cost_usd", fmt.Sprintf("%.6f", s.CostUSD)}, {"patch", s.Changes.Digest},
	} {
		if v := xmlLine(kv[1]); v != "" {
			suite.Properties = append(suite.Properties, junitProperty{kv[0], v})
		}
	}
	var notes strings.Builder
	for _, c := range casesOf(s) {
		jc := junitCase{Name: xmlLine(cmp.Or(c.name, c.class)), Class: c.class, Time: seconds(c.took)}
		if c.failed {
			f := &junitFailure{Message: xmlLine(c.text), Type: xmlLine(cmp.Or(c.kind, "failed")), Text: xmlText(c.detail)}
			// An error is a run that could not do its work; a failure is a
			// check that found something.
			if c.class == "nightshift.run" && s.Outcome != "denied" {
				jc.Error = f
				suite.Errors++
			} else {
				jc.Failure = f
				suite.Failures++
			}
		} else if c.detail != "" {
			fmt.Fprintf(&notes, "%s\n%s\n", c.name, c.detail)
		}
		suite.Cases = append(suite.Cases, jc)
	}
	suite.Tests = len(suite.Cases)
	suite.Err = xmlText(notes.String())
	return suite
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", max(d, 0).Seconds()) }

// xmlText makes text inert. encoding/xml escapes markup and replaces characters
// that XML forbids; Plain does the rest, since CI services print these texts.
func xmlText(s string) string { return Plain(s) }

// xmlLine is text for an attribute.
func xmlLine(s string) string { return PlainLine(s, 1000) }

func writeXML(w io.Writer, doc any) error {
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
