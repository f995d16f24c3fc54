package report

import (
	"encoding/xml"
	"io"
)

type checkstyleDoc struct {
	XMLName xml.Name         `xml:"checkstyle"`
	Version string           `xml:"version,attr"`
	Files   []checkstyleFile `xml:"file"`
}

type checkstyleFile struct {
	Name   string            `xml:"name,attr"`
	Errors []checkstyleError `xml:"error"`
}

type checkstyleError struct {
	Line     int    `xml:"line,attr"`
	Severity string `xml:"severity,attr"`
	Message  string `xml:"message,attr"`
	Source   string `xml:"source,attr"`
}

func renderCheckstyle(w io.Writer, runs []*Summary, _ *Options) error {
	doc := checkstyleDoc{Version: "4.3"}
	at := map[string]int{}
	for _, s := range runs {
		for _, i := range issuesOf(s) {
			file, line := i.location()
			n, ok := at[file]
			if !ok {
				n = len(doc.Files)
				at[file] = n
				doc.Files = append(doc.Files, checkstyleFile{Name: file})
			}
			message := i.title
			if i.body != "" {
				message += ": " + i.body
			}
			doc.Files[n].Errors = append(doc.Files[n].Errors, checkstyleError{
				Line: line, Severity: checkstyleLevel(i.severity), Message: xmlLine(message), Source: "nightshift." + i.rule})
		}
	}
	return writeXML(w, doc)
}

func checkstyleLevel(severity string) string {
	switch severity {
	case "critical", "high":
		return "error"
	case "low":
		return "info"
	}
	return "warning"
}
