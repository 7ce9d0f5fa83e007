"""The records of the generator: permits, licences and districts in families that resemble each other."""

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, ClassVar

import numpy as np
import shapely

Row = dict[str, Any]

STREETS = [
    "Oak",
    "Pine",
    "Maple",
    "Cedar",
    "Main",
    "Lake",
    "Hill",
    "Park",
    "River",
    "Church",
    "Orange",
    "Palm",
    "Bay",
    "Ridge",
    "Walnut",
    "Magnolia",
    "Cypress",
    "Seminole",
    "Jefferson",
    "Lincoln",
    "Madison",
    "Harbor",
    "Sunset",
    "Meadow",
    "Forest",
    "Orchard",
    "Spring",
    "Mill",
    "College",
    "Union",
    "Highland",
    "Lakeview",
]
ENDINGS = ("Street", "Avenue", "Road", "Drive", "Lane", "Court", "Boulevard", "Place", "Way")
SIDES = ("", "", "", "North ", "South ", "East ", "West ")
FIRST = [
    "James",
    "Mary",
    "Robert",
    "Patricia",
    "John",
    "Jennifer",
    "Michael",
    "Linda",
    "David",
    "Elizabeth",
    "William",
    "Barbara",
    "Richard",
    "Susan",
    "Joseph",
    "Jessica",
    "Thomas",
    "Karen",
    "Carlos",
    "Maria",
    "Jose",
    "Ana",
    "Luis",
    "Carmen",
    "Wei",
    "Mei",
    "Ahmed",
    "Fatima",
    "Olga",
    "Ivan",
    "Priya",
    "Raj",
    "Yuki",
    "Hiro",
]
LAST = [
    "Smith",
    "Johnson",
    "Williams",
    "Brown",
    "Jones",
    "Garcia",
    "Miller",
    "Davis",
    "Rodriguez",
    "Martinez",
    "Hernandez",
    "Lopez",
    "Gonzalez",
    "Wilson",
    "Anderson",
    "Thomas",
    "Taylor",
    "Moore",
    "Jackson",
    "Martin",
    "Lee",
    "Perez",
    "Thompson",
    "White",
    "Harris",
    "Sanchez",
    "Clark",
    "Ramirez",
    "Lewis",
    "Robinson",
    "Walker",
    "Young",
    "Allen",
    "King",
    "Wright",
    "Scott",
    "Torres",
    "Nguyen",
    "Hill",
    "Flores",
    "Green",
    "Adams",
    "Nelson",
    "Baker",
    "Hall",
    "Rivera",
    "Campbell",
]
TRADES = [
    "Roofing",
    "Electrical",
    "Plumbing",
    "Mechanical",
    "Solar",
    "Pools",
    "Fencing",
    "Homes",
    "Builders",
    "Construction",
    "Contracting",
    "Remodeling",
]
FORMS = ("LLC", "Inc", "Incorporated", "Company", "Corporation", "and Sons", "Services LLC", "Brothers Inc")
WORKS = (
    "Replace {0} sq shingle roof", "Install {0} kW solar array on roof", "Electrical service upgrade to {0} amp",
    "Replace {0} ton air conditioning unit like for like", "New single family residence, model {0}",
    "Interior remodel of kitchen and bath, {0} sq ft", "Install {0} ft wood fence with gate", "Re-pipe {0} fixtures",
    "Replace {0} windows size for size", "New in-ground pool, {0} gallons", "Commercial tenant finish, suite {0}",
    "Replace water heater, {0} gallon gas", "Demolition of accessory building {0} sq ft", "Driveway apron {0} ft wide",
)  # fmt: skip
SHOPS = [
    "Grill",
    "Cafe",
    "Bakery",
    "Salon",
    "Barber",
    "Market",
    "Pharmacy",
    "Dental",
    "Auto",
    "Tire",
    "Nails",
    "Fitness",
    "Books",
    "Florist",
    "Laundry",
    "Pizza",
    "Tacos",
    "Sushi",
    "Bar",
    "Tavern",
    "Hardware",
    "Jewelers",
    "Optical",
    "Daycare",
    "Yoga",
    "Tattoo",
    "Vape",
    "Cleaners",
    "Insurance",
    "Realty",
    "Law",
    "Accounting",
]
ADJECTIVES = [
    "Golden",
    "Blue",
    "Royal",
    "Sunny",
    "Happy",
    "Lucky",
    "Green",
    "Silver",
    "Coastal",
    "Tropical",
    "Downtown",
    "Family",
    "Premier",
    "Quality",
    "First",
    "Classic",
    "Modern",
    "Urban",
    "Island",
    "Bright",
    "Elite",
    "Grand",
    "Magic",
    "Native",
    "Ocean",
    "Pelican",
    "Quiet",
    "Rapid",
    "Sweet",
    "True",
    "Velvet",
    "Wild",
]
CATEGORIES = ("Retail", "Restaurant", "Personal services", "Professional", "Home business", "Contractor", "Mobile")
USES = (
    "Residential", "Medium Density Residential", "Village Center", "Commercial", "Industrial", "Agricultural",
    "Conservation", "Mixed Use", "Planned Development", "Highway Commercial", "Historic Neighborhood", "Lakeshore",
)  # fmt: skip


SLOT = 0.08
"""Degrees that a town of districts has for itself."""


class World:
    """What the kinds share: people, places, numbers."""

    number: str | None = None
    points = True
    choices: ClassVar[dict[str, tuple[Any, ...]]] = {}
    retold: frozenset[str] = frozenset()

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.given = 0

    def records(self, count: int) -> list[Row]:
        """Make families until there are enough records."""
        made: list[Row] = []
        while len(made) < count:
            made.extend(self.family())
        return made[:count]

    def fresh(self) -> Row:
        """Make a record of a family of its own."""
        return self.family()[0]

    def family(self) -> list[Row]:
        """Make records that resemble each other."""
        raise NotImplementedError

    def next_number(self) -> str:
        """Give the next record's number."""
        self.given += self.chance.choice([1, 1, 1, 2, 5])
        return f"B-2025-{self.given:06d}"

    def person(self) -> str:
        return f"{self.chance.choice(FIRST)} {self.chance.choice('ABCDEFGHJKLMNPRST')} {self.chance.choice(LAST)}"

    def street(self) -> str:
        c = self.chance
        return f"{c.choice(SIDES)}{c.choice(STREETS)} {c.choice(ENDINGS)}"

    def place(self) -> tuple[float, float]:
        return self.chance.uniform(-81.7, -81.1), self.chance.uniform(28.2, 28.8)

    def point(self, x: float, y: float) -> bytes:
        return shapely.to_wkb(shapely.Point(round(x, 7), round(y, 7)), byte_order=1)

    def day(self, since: int = 2015) -> date:
        return date(since, 1, 1) + timedelta(self.chance.randrange(365 * (2025 - since)))


class Permits(World):
    """Permits: several a house, several of one job on one day, a builder's street of equal houses."""

    number = "permit_number"
    types: ClassVar = {
        "permit_number": "string", "permit_type": "string", "status": "string", "address": "string", "unit": "string",
        "zip": "string", "parcel": "string", "owner": "string", "contractor": "string", "description": "string",
        "applied": "date", "issued": "date", "finaled": "date", "valuation": "number", "square_feet": "integer",
        "geometry": "geometry",
    }  # fmt: skip
    choices: ClassVar = {"status": ("Applied", "In review", "Issued", "Finaled", "Expired", "Void")}
    retold = frozenset({"owner", "contractor", "valuation", "finaled", "issued"})
    edited: ClassVar = {
        "status": 20, "address": 14, "unit": 2, "zip": 1, "parcel": 3, "owner": 8, "contractor": 10,
        "description": 16, "applied": 2, "issued": 8, "finaled": 10, "valuation": 10, "square_feet": 3, "geometry": 10,
    }  # fmt: skip

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.contractors = [f"{chance.choice(LAST)} {chance.choice(TRADES)} {chance.choice(FORMS)}" for _ in range(400)]

    def family(self) -> list[Row]:
        c = self.chance
        if c.random() < 0.08:
            return self._builders_street()
        house = self._house(c.randrange(1, 9900), self.street(), self.place())
        if c.random() < 0.12:
            return [
                self._permit(house | {"unit": f"Unit {n}", "owner": self.person()}) for n in range(1, c.randrange(3, 9))
            ]
        job = self._permit(house)
        return [job, *(self.sibling(job) for _ in range(c.choice([0, 0, 1, 1, 2, 3])))]

    def sibling(self, row: Row) -> Row:
        """Another permit of the same house, half the time of the same job, or of another flat of the house."""
        c = self.chance
        house = {name: row[name] for name in ("address", "unit", "zip", "parcel", "owner", "geometry")}
        if row["unit"] is not None and c.random() < 0.6:
            house |= {"unit": f"Unit {c.randrange(1, 60)}", "owner": self.person()}
        other = self._permit(house)
        if c.random() < 0.5:
            other |= {name: row[name] for name in ("applied", "contractor", "status")}
        return other

    def filled(self, name: str) -> Any:
        """Give a value for a column that had none, or a new one."""
        while True:
            house = self._house(1, self.street(), self.place()) | {"unit": f"Unit {self.chance.randrange(1, 60)}"}
            fresh = self._permit(house)[name]
            if fresh is not None:
                return fresh

    def _house(self, number: int, street: str, at: tuple[float, float]) -> Row:
        c = self.chance
        return {
            "address": f"{number} {street}", "unit": None, "zip": f"328{int(at[0] * 100) % 12 + 1:02d}",
            "parcel": f"{c.randrange(1, 36):02d}-{c.randrange(20, 30)}-{c.randrange(100000):05d}",
            "owner": self.person() if c.random() < 0.9 else None,
            "geometry": self.point(*at) if c.random() < 0.95 else None,
        }  # fmt: skip

    def _permit(self, house: Row) -> Row:
        c = self.chance
        applied = self.day()
        issued = applied + timedelta(c.randrange(60)) if c.random() < 0.85 else None
        finaled = issued + timedelta(c.randrange(20, 300)) if issued and c.random() < 0.6 else None
        work = c.choice(WORKS)
        return {
            "permit_number": self.next_number(), "permit_type": c.choice(TRADES[:7]),
            "status": c.choice(self.choices["status"]), **house,
            "contractor": self.contractors[min(int(c.expovariate(1 / 60)), 399)],
            "description": work.format(c.choice([10, 12, 20, 30, 40, 50, 80, 100, 150, 200, 400, 1200, 2210])),
            "applied": applied, "issued": issued, "finaled": finaled,
            "valuation": round(c.lognormvariate(9, 1.2), 2 if c.random() < 0.3 else -2),
            "square_feet": c.randrange(80, 4000) if c.random() < 0.5 else None,
        } | {"geometry": house["geometry"]}  # fmt: skip

    def _builders_street(self) -> list[Row]:
        c = self.chance
        street, (x, y), first = self.street(), self.place(), c.randrange(100, 9000)
        shared = self._permit(self._house(first, street, (x, y)))
        same = ("permit_type", "status", "contractor", "applied", "issued", "finaled", "owner")
        made = []
        for place in range(c.randrange(4, 15)):
            house = self._house(first + 4 * place, street, (x + place * 0.0002, y))
            permit = self._permit(house) | {name: shared[name] for name in same}
            if c.random() < 0.7:
                permit |= {name: shared[name] for name in ("description", "square_feet")}
            made.append(permit)
        return made


class Licences(World):
    """Business licences: many a building, chains, owners of several."""

    number = "licence_number"
    types: ClassVar = {
        "licence_number": "string", "business_name": "string", "trade_name": "string", "owner": "string",
        "category": "string", "address": "string", "unit": "string", "zip": "string", "phone": "string",
        "issued": "date", "expires": "date", "fee": "number", "employees": "integer", "geometry": "geometry",
    }  # fmt: skip
    choices: ClassVar = {"category": CATEGORIES, "fee": (25.0, 50.0, 75.0, 150.0, 300.0)}
    retold = frozenset({"phone", "owner", "expires", "trade_name", "employees"})
    edited: ClassVar = {
        "business_name": 18, "trade_name": 8, "owner": 8, "category": 6, "address": 16, "unit": 6, "zip": 1, "phone": 8,
        "issued": 2, "expires": 18, "fee": 6, "employees": 8, "geometry": 8,
    }  # fmt: skip

    def family(self) -> list[Row]:
        c = self.chance
        first = self._licence(self._spot(), self.person())
        way = c.random()
        if way < 0.25:
            spot = self._spot()
            return [self._licence(self._suite(spot), self.person()) for _ in range(c.randrange(2, 15))]
        if way < 0.35:
            return [first, *(self._branch(first) for _ in range(c.randrange(1, 6)))]
        if way < 0.45:
            return [first, *(self._licence(self._spot(), first["owner"]) for _ in range(c.randrange(1, 4)))]
        return [first]

    def sibling(self, row: Row) -> Row:
        """Another business at the same door, in the same building, of the same owner, or a branch of the same name."""
        c = self.chance
        spot = {name: row[name] for name in ("address", "unit", "zip", "geometry")}
        way = c.randrange(4)
        if way == 0:
            return self._licence(spot, self.person())
        if way == 1:
            return self._licence(self._suite(spot), self.person())
        if way == 2:
            return self._licence(self._spot() if c.random() < 0.5 else spot, row["owner"])
        return self._branch(row)

    def filled(self, name: str) -> Any:
        """Give a value for a column that had none, or a new one."""
        while True:
            fresh = self._licence(self._suite(self._spot()), self.person())[name]
            if fresh is not None:
                return fresh

    def _spot(self) -> Row:
        c, at = self.chance, self.place()
        return {
            "address": f"{c.randrange(1, 9900)} {self.street()}",
            "unit": f"Suite {c.randrange(100, 900)}" if c.random() < 0.3 else None,
            "zip": f"328{int(at[0] * 100) % 12 + 1:02d}", "geometry": self.point(*at) if c.random() < 0.9 else None,
        }  # fmt: skip

    def _suite(self, spot: Row) -> Row:
        return spot | {"unit": f"Suite {self.chance.randrange(100, 999)}"}

    def _trade(self) -> str:
        return f"{self.chance.choice(ADJECTIVES)} {self.chance.choice(LAST)} {self.chance.choice(SHOPS)}"

    def _branch(self, row: Row) -> Row:
        same = {name: row[name] for name in ("business_name", "trade_name", "owner", "category", "fee")}
        return self._licence(self._spot(), row["owner"]) | same

    def _licence(self, spot: Row, owner: str) -> Row:
        c = self.chance
        issued = self.day(2018)
        name = (
            f"{self._trade()} {c.choice(FORMS)}"
            if c.random() < 0.7
            else f"{owner.rsplit(maxsplit=1)[-1]} {c.choice(SHOPS)}"
        )
        return {
            "licence_number": self.next_number(), "business_name": name,
            "trade_name": self._trade() if c.random() < 0.4 else None, "owner": owner,
            "category": c.choice(CATEGORIES), "address": spot["address"], "unit": spot["unit"], "zip": spot["zip"],
            "phone": f"407-{c.randrange(200, 999)}-{c.randrange(10000):04d}" if c.random() < 0.8 else None,
            "issued": issued, "expires": date(c.choice([2025, 2026, 2027]), 9, 30),
            "fee": c.choice(self.choices["fee"]), "employees": c.randrange(1, 40), "geometry": spot["geometry"],
        }  # fmt: skip


class Districts(World):
    """Districts: cells of a town's grid, many of one name, each touching its neighbours; without a number."""

    points = False
    towns = 0
    types: ClassVar = {
        "town": "string", "code": "string", "name": "string", "use": "string", "acres": "number",
        "min_lot": "integer", "max_height": "integer", "adopted": "date", "notes": "string", "geometry": "geometry",
    }  # fmt: skip
    choices: ClassVar = {"use": USES}
    retold = frozenset({"notes", "adopted"})
    edited: ClassVar = {
        "code": 8, "name": 14, "use": 4, "acres": 12, "min_lot": 10, "max_height": 8, "adopted": 10, "notes": 10,
        "geometry": 40,
    }  # fmt: skip

    def family(self) -> list[Row]:
        c = self.chance
        town = f"{c.choice(ADJECTIVES)} {c.choice(STREETS)}{c.choice(['', ' Falls', ' Center', ' Beach'])}"
        rules = [self._rule() for _ in range(c.randrange(4, 10))]
        self.towns += 1
        x, y = -88 + SLOT * (self.towns % 100) + 0.003, 25 + SLOT * (self.towns // 100) + 0.003
        across = c.randrange(4, 9)
        corners = np.array([[[x + i * 0.004 + c.uniform(-1, 1) * 0.001, y + j * 0.004 + c.uniform(-1, 1) * 0.001]
                             for j in range(across + 1)] for i in range(across + 1)])  # fmt: skip
        made = []
        for i in range(across):
            for j in range(across):
                ring = [corners[i, j], corners[i + 1, j], corners[i + 1, j + 1], corners[i, j + 1]]
                made.append(self._district(town, c.choice(rules), ring))
        return made

    def fresh(self) -> Row:
        return self.chance.choice(self.family())

    def sibling(self, row: Row) -> Row:
        """A district of the same town and rules at the edge of the town, on land of its own."""
        c = self.chance
        shape = shapely.from_wkb(row["geometry"])
        west = shape.bounds[0]
        x = west - west % SLOT + c.uniform(0.5, 0.85) * SLOT - west
        moved = shapely.transform(shape, lambda at: at + np.array([x, 0.0]))
        wkb = shapely.to_wkb(shapely.normalize(moved), byte_order=1)
        return row | {"acres": round(row["acres"] * c.uniform(0.7, 1.3), 2) if row["acres"] else None, "geometry": wkb}

    def filled(self, name: str) -> Any:
        """Give a value for a column that had none, or a new one."""
        return {"notes": f"See ordinance {self.chance.randrange(1, 400)}", "adopted": self.day(1995)}.get(
            name, self._rule().get(name, 1)
        )

    def _rule(self) -> Row:
        c = self.chance
        use = c.choice(USES)
        return {
            "code": f"{''.join(word[0] for word in use.split())}-{c.randrange(1, 9)}",
            "name": f"{use} {c.choice(['District', 'Zone', 'Area'])} {c.choice(['', 'A', 'B', 'Overlay'])}".strip(),
            "use": use, "min_lot": c.choice([5000, 7500, 10000, 20000, 43560, 87120]),
            "max_height": c.choice([28, 35, 40, 45, 60]), "adopted": self.day(1995),
            "notes": f"See ordinance {c.randrange(1, 400)}" if c.random() < 0.4 else None,
        }  # fmt: skip

    def _district(self, town: str, rule: Row, ring: list[Any]) -> Row:
        shape = shapely.normalize(shapely.MultiPolygon([shapely.segmentize(shapely.Polygon(ring), 0.0011)]))
        acres = round(shape.area * 111_195 * 98_000 / 4046.9, 2)
        return {
            "town": town, "code": rule["code"], "name": rule["name"], "use": rule["use"], "acres": acres,
            "min_lot": rule["min_lot"], "max_height": rule["max_height"], "adopted": rule["adopted"],
            "notes": rule["notes"], "geometry": shapely.to_wkb(shape, byte_order=1),
        }  # fmt: skip


WORLDS: dict[str, Callable[[random.Random], World]] = {
    "permits": Permits,
    "licences": Licences,
    "districts": Districts,
}
