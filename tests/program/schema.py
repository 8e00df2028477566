"""Whether a report is what share/terrace/report.schema.json says: the part of JSON Schema that it uses, without a package.

    wrong = schema.faults(report)         # [] or what is wrong, with its place
    more = schema.unknown(report)         # fields that the schema does not name
"""
import json
import os

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/program/report.schema.json")) as f:
    SCHEMA = json.load(f)
TYPES = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool, "null": type(None)}
KNOWN = {"$schema", "$id", "title", "description", "type", "enum", "anyOf", "minimum", "required", "properties", "additionalProperties", "items"}


def is_a(value, name):
    return isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("number", "integer"))


def faults(value, schema=SCHEMA, place="report"):
    assert set(schema) <= KNOWN, f"a word that this program does not know: {set(schema) - KNOWN}"
    names = schema.get("type", [])
    if names and not any(is_a(value, name) for name in ([names] if isinstance(names, str) else names)):
        return [f"{place}: {value!r} is no {names}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r} is none of {schema['enum']}")
    if "anyOf" in schema and all(faults(value, one, place) for one in schema["anyOf"]):
        found.append(f"{place}: {value!r} is none of the choices")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{place}: {value!r} is below {schema['minimum']}")
    if isinstance(value, list) and "items" in schema:
        for i, one in enumerate(value):
            found += faults(one, schema["items"], f"{place}[{i}]")
    if not isinstance(value, dict):
        return found
    found += [f"{place}: {name} is missing" for name in schema.get("required", []) if name not in value]
    for name, one in value.items():
        more = schema.get("additionalProperties", True)
        if name in schema.get("properties", {}):
            found += faults(one, schema["properties"][name], f"{place}.{name}")
        elif more is False:
            found.append(f"{place}: {name} is not known")
        elif isinstance(more, dict):
            found += faults(one, more, f"{place}.{name}")
    return found


def unknown(report):
    known = SCHEMA["properties"]
    return sorted(set(report) - set(known)) + sorted("result." + name for name in set(report["result"]) - set(known["result"]["properties"]))
